"""The recorder: a dispatch mode below autograd that writes a line of JSON for every operator.

A line has the fields of `harness.trace.model.OperatorCall`: index, name with overload, phase, module path, the user's
line (of an operator that autograd calls that of the forward call), the function that this line calls, per input and
output digest, type and shape, strides, source or row of the sketch, all other arguments, the digest of the generator's
state where the operator is random, the value that leaves PyTorch, and which outputs and inputs were substituted.
"""

from __future__ import annotations

import json
import os
import traceback
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .digest import UNKNOWN, digest, sketch
from .operators import OperatorSchema, find_generator, flatten, number_slots, rebuild, written_tensors
from .places import Places, is_pytorchs
from .programs import Programs
from .storages import Methods, Storages, StorageState, geometry

OUT_OF_MEMORY = "memory ran out while the recorder read or stored tensors: a smaller batch, or fewer steps"


class Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Records every operator; stores and substitutes tensors as the request says."""

    def __init__(self, request: dict[str, Any]) -> None:
        super().__init__()
        self.out, self.process = request["out"], os.getpid()
        self.file = open(os.path.join(self.out, "trace.jsonl"), "w", encoding="utf-8")  # noqa: SIM115 - until `close`
        self.sketches = open(os.path.join(self.out, "sketches.bin"), "wb")  # noqa: SIM115
        self.count = self.rows = 0
        self.operators: dict[Any, OperatorSchema] = {}
        self.storages, self.places = Storages(), Places()
        self.methods = Methods(self.storages)
        self.programs = Programs(request.get("programs", []), self.out)
        self.store = {(index, slot) for index, slot in request.get("store", ())}
        self.guards, self.puts, self.feeds = (
            _by_operator(request.get(name, ())) for name in ("guards", "puts", "feeds")
        )
        self.refused: set[int] = set()  # groups whose inputs are not those of the other version
        self.outputs: list[tuple[StorageState, int, int]] = []
        self.raised: BaseException | None = None  # by an operator: the script's own
        self.raised_by: dict[str, Any] = {"operator": "", "given": []}
        self.fault = ""  # the traceback of a mistake of the recorder's
        self.is_out_of_memory = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if os.getpid() != self.process:  # a process that was forked, with the mode still on
            return func(*args, **kwargs)
        try:
            operator = self.operators.get(func)
            if operator is None:
                operator = self.operators[func] = OperatorSchema(func)
            return self._record(operator, func, args, kwargs)
        except BaseException as error:
            if error is not self.raised:
                self._note_fault(error)
            raise

    def _note_fault(self, error: BaseException) -> None:
        """Note an error that no operator has raised as it was called: of a kernel that was started before, or the
        recorder's own."""
        text = str(error)
        if isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)) or "can't allocate memory" in text:
            self.is_out_of_memory = True
        elif not text.startswith("CUDA error"):
            self.fault = traceback.format_exc()

    def _record(self, operator: OperatorSchema, func: Any, args: Any, kwargs: Any) -> Any:
        index, self.count = self.count, self.count + 1
        inputs: list[Any] = []
        scalars: list[str] = []
        flatten((args, kwargs), inputs, scalars)
        line: dict[str, Any] = {"index": index, "name": operator.name, **self.places.locate(), "scalars": scalars}
        line["inputs"] = [
            {**_value(self.storages.digest(tensor), tensor), "source": self.storages.find_source(tensor)}
            for tensor in inputs
        ]
        if operator.draws:
            line["generator"] = digest(find_generator(args, kwargs).get_state())
        for position, expected, group in self.guards.get(index, ()):
            if position >= len(inputs) or line["inputs"][position]["digest"] != expected:
                self.refused.add(group)
        if index in self.feeds:
            args, kwargs = self._substitute_inputs(operator, args, kwargs, inputs, line)
        self.programs.store_call(index, operator, args, kwargs, self.storages)
        try:
            result = func(*args, **kwargs)
        except BaseException as error:
            self.raised = error
            self.raised_by = {"operator": operator.name, "given": [value["digest"] for value in line["inputs"]]}
            raise
        returned: list[Any] = []
        flatten(result, returned)
        written = written_tensors(operator.written, args, kwargs)
        slots = number_slots(returned, written)
        if self._substitute_outputs(slots, written, line):
            result = rebuild(result, iter(slots))
        self._record_outputs(operator, slots, written, inputs, line)
        if operator.takes_value:
            line["value"] = repr(result)
        self.file.write(json.dumps(line, separators=(",", ":")) + "\n")
        return result

    def _substitute_inputs(self, operator: OperatorSchema, args: Any, kwargs: Any, inputs: list[Any], line: Any) -> Any:
        """Return the arguments, with stored tensors in place of some inputs, but for those that are written to."""
        written = written_tensors(operator.written, args, kwargs)
        for position, path, group in self.feeds[line["index"]]:
            if group not in self.refused and all(inputs[position] is not tensor for tensor in written):
                inputs[position] = torch.load(path)
                line.setdefault("fed", []).append(position)
        tensors = iter(inputs)
        return rebuild(args, tensors), rebuild(kwargs, tensors)

    def _substitute_outputs(self, slots: list[Any], written: list[Any], line: dict[str, Any]) -> bool:
        """Overwrite outputs with stored tensors; return whether some, of another type or shape, are other tensors."""
        is_rebuilt = False
        for slot, path, group in self.puts.get(line["index"], ()):
            if group in self.refused or slot >= len(slots):
                continue
            stored, tensor = torch.load(path), slots[slot]
            if _type(stored) == _type(tensor):
                if digest(stored) == digest(tensor):
                    continue
                try:
                    tensor.data.copy_(stored)
                except RuntimeError:  # some sparse ones cannot
                    continue
            elif written:
                continue
            else:
                slots[slot], is_rebuilt = stored, True
            line.setdefault("put", []).append(slot)
        return is_rebuilt

    def _record_outputs(
        self, operator: OperatorSchema, slots: list[Any], written: list[Any], inputs: list[Any], line: dict[str, Any]
    ) -> None:
        """Record what came back, and then what was written to and did not come back. A view is not digested before it
        is read: no operator has computed it. What was substituted counts as written."""
        index = line["index"]
        known = {id(self.storages.find(tensor)) for tensor in inputs}
        line["outputs"] = []
        for slot, tensor in enumerate(slots):
            if (index, slot) in self.store:
                torch.save(tensor.detach().clone(), os.path.join(self.out, f"{index}-{slot}.pt"))
            state = self.storages.find(tensor)
            is_written = slot in line.get("put", ()) or (
                any(tensor is each for each in written) and not operator.allocates
            )
            is_view = state is not None and id(state) in known and not is_written
            if state is not None:
                if not is_view:
                    state.write((index, slot))
                    state.is_blank = operator.allocates and not is_written
                    self.outputs.append((state, index, slot))
                state.makers[geometry(tensor)] = (index, slot)
            made = "" if is_view else self.storages.digest(tensor)
            made = "" if made == UNKNOWN else made
            line["outputs"].append({**_value(made, tensor), "row": self._sketch(tensor) if made else None})
        self.programs.store_outputs(index, slots)

    def _sketch(self, tensor: Any) -> int | None:
        """Write the sketch of a floating tensor; return its row."""
        if tensor.layout is not torch.strided or not (tensor.is_floating_point() or tensor.is_complex()):
            return None
        self.sketches.write(sketch(tensor))
        self.rows += 1
        return self.rows - 1

    def locate_error(self, error: BaseException) -> dict[str, Any]:
        """Return where the exception that ended the script comes from: the user's line, the function that it calls,
        the operator, if one raised it, what that was given, and whether PyTorch lacks what was asked for."""
        line, function, by_pytorch = self.places.lines.locate_error(error)
        by_operator = self.raised_by if self.raised is error else {"operator": "", "given": []}
        by_pytorch = by_pytorch or bool(by_operator["operator"])
        return {
            "line": line,
            "function": function if by_pytorch else "",
            "is_lacking": _is_lacking(error),
            **by_operator,
        }

    def close(self) -> dict[str, Any]:
        """Return `alive`, the outputs that the script still held when it ended, and why there is no trace."""
        self.places.close()
        self.methods.restore()
        self.file.close()
        self.sketches.close()
        alive = [
            (index, slot)
            for state, index, slot in self.outputs
            if state.writer == (index, slot) and not state.alive.expired()
        ]
        return {"alive": alive, **({"unsupported": OUT_OF_MEMORY} if self.is_out_of_memory else {})}


def _by_operator(rows: Any) -> dict[int, Any]:
    """Group rows by the operator's index, which comes first."""
    groups: dict[int, Any] = {}
    for index, *rest in rows:
        groups.setdefault(index, []).append(rest)
    return groups


def _type(tensor: Any) -> str:
    return "{}[{}]".format(str(tensor.dtype)[6:], ", ".join(map(str, tensor.shape)))


def _value(digest: str, tensor: Any) -> dict[str, Any]:
    strides = tensor.stride() if tensor.layout == torch.strided else ()
    return {"digest": digest, "type": _type(tensor), "strides": strides}


def _is_lacking(error: BaseException) -> bool:
    """Return whether the error says that PyTorch itself has no such name or module."""
    if isinstance(error, ImportError):
        return (error.name or "").partition(".")[0] == "torch"
    return isinstance(error, AttributeError) and is_pytorchs(getattr(error, "obj", None))
