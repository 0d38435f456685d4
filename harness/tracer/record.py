"""The recorder: a dispatch mode below autograd that writes a line of JSON for every operator.

A line: `i` index, `n` name and overload, `p` phase, `m` module path, `l` the user's line (of an operator that autograd
calls that of the forward call), `f` the function that this line calls, `in` and `out` (per tensor: digest, type and
shape, strides, source or row of the sketch), `s` all other arguments, `g` digest of the generator's state where it is
random, `v` the value that leaves PyTorch, `put` and `fed` where outputs and inputs were replaced. What lies outside of
the part that is asked for has no line.
"""

from __future__ import annotations

import json
import os
import traceback
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .calls import is_of_pytorch
from .digest import UNKNOWN, digest, sketch
from .methods import Methods
from .operators import Operator, flatten, generator_of, rebuilt
from .places import Places
from .programs import Programs
from .storages import State, Storages, geometry

FULL = "memory ran out while the recorder read or stored tensors: --only or --steps, or a smaller batch"


class Recorder(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self, request: dict[str, Any]) -> None:
        super().__init__()
        self.out, self.process = request["out"], os.getpid()
        self.file = open(os.path.join(self.out, "trace.jsonl"), "w", encoding="utf-8")  # noqa: SIM115 - until `close`
        self.sketches = open(os.path.join(self.out, "sketches.bin"), "wb")  # noqa: SIM115
        self.count = self.rows = 0
        self.operators: dict[Any, Operator] = {}
        self.storages = Storages()
        self.places = Places(request)
        self.handed: set[tuple[int, int]] = set()  # outputs that an operator outside of the part read
        self.elsewhere: list[str] = []  # numbers that left PyTorch there
        self.notes: set[str] = set()
        self.alive: list[tuple[State, int, int]] = []
        self.methods = Methods(self.storages)
        self.programs = Programs(request.get("programs", []), self.out)
        self.store = {int(op): slots for op, slots in request.get("store", {}).items()}
        self.guards = {int(op): guards for op, guards in request.get("guards", {}).items()}
        self.puts = {int(op): puts for op, puts in request.get("puts", {}).items()}
        self.feeds = {int(op): feeds for op, feeds in request.get("feeds", {}).items()}
        self.raised: BaseException | None = None  # by an operator: the script's own
        self.raising: dict[str, Any] = {}  # that operator's name, and digests of what it was given
        self.failed = ""  # the traceback of a mistake of the recorder's
        self.full = False  # whether memory ran out for the recorder
        self.refused: set[int] = set()  # groups whose inputs were not those of the other version

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if os.getpid() != self.process:  # a process that was forked, with the mode still on
            return func(*args, **(kwargs or {}))
        try:
            return self._record(func, args, kwargs or {})
        except BaseException as error:
            if error is not self.raised:
                self._fault(error)
            raise

    def _fault(self, error: BaseException) -> None:
        """An error that no operator has raised as it was called: of a kernel that was started before, or the
        recorder's own."""
        text = str(error)
        if isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)) or "can't allocate memory" in text:
            self.full = True
        elif not text.startswith("CUDA error"):
            self.failed = traceback.format_exc()

    def _record(self, func: Any, args: Any, kwargs: Any) -> Any:
        operator = self.operators.get(func)
        if operator is None:
            operator = self.operators[func] = Operator(func)
        place = self.places.here()
        if place is None:
            return self._pass_by(operator, func, args, kwargs)
        index, self.count = self.count, self.count + 1
        inputs: list[Any] = []
        scalars: list[str] = []
        flatten(args, inputs, scalars)
        flatten(kwargs, inputs, scalars)
        line: dict[str, Any] = {"i": index, "n": operator.name, **place, "s": scalars}
        line["in"] = [self._input(tensor) for tensor in inputs]
        if operator.random:
            line["g"] = digest(generator_of(args, kwargs).get_state())
        for position, wanted, group in self.guards.get(index, ()):
            if position >= len(inputs) or line["in"][position][0] != wanted:
                self.refused.add(group)
        if index in self.feeds:
            args, kwargs = self._fed(index, operator, args, kwargs, inputs, line)
        self.programs.before(index, operator, args, kwargs, self.storages)
        try:
            result = func(*args, **kwargs)
        except BaseException as error:
            self.raised = error
            self.raising = {"operator": operator.name, "given": [each[0] for each in line["in"]]}
            raise
        outputs: list[Any] = []
        flatten(result, outputs)
        mutated = operator.mutated(args, kwargs)
        slots = outputs + [each for each in mutated if all(each is not other for other in outputs)]
        if self._put(index, slots, mutated, line):
            result = rebuilt(result, iter(slots))
        line["out"] = self._outputs(index, operator, slots, mutated, inputs, line.get("put", ()))
        if operator.takes_value:
            line["v"] = repr(result)
        self.file.write(json.dumps(line, separators=(",", ":")) + "\n")
        return result

    def _pass_by(self, operator: Operator, func: Any, args: Any, kwargs: Any) -> Any:
        """Outside of the part: what is read there was handed to it, and what is written there is known no more."""
        inputs: list[Any] = []
        flatten((args, kwargs), inputs)
        for state in map(self.storages.known, inputs):
            if state is not None and state.last is not None:
                self.handed.add(state.last)
        result = func(*args, **kwargs)
        if operator.takes_value:
            self.elsewhere.append(repr(result))
        if operator.blank and not operator.written:
            self.storages.allocated(result)
        elif operator.written:
            for state in map(self.storages.known, operator.mutated(args, kwargs)):
                if state is not None:
                    state.written(None)
        return result

    def _fed(
        self, index: int, operator: Operator, args: Any, kwargs: Any, inputs: list[Any], line: dict[str, Any]
    ) -> Any:
        """The arguments, with stored tensors in place of some inputs: but for those that are written to."""
        written = operator.mutated(args, kwargs)
        for place, name, group in self.feeds[index]:
            if group not in self.refused and all(inputs[place] is not each for each in written):
                inputs[place] = torch.load(name)
                line.setdefault("fed", []).append(place)
        tensors = iter(inputs)
        return rebuilt(args, tensors), rebuilt(kwargs, tensors)

    def _input(self, tensor: Any) -> list[Any]:
        if tensor.device.type not in ("cpu", "cuda"):
            self.notes.add(f"tensors on {tensor.device.type} were recorded: this was tried on CPUs and CUDA alone")
        source = self.storages.source(tensor)
        return [self.storages.digest(tensor), _type(tensor), list(_stride(tensor)), source]

    def _put(self, index: int, slots: list[Any], mutated: list[Any], line: dict[str, Any]) -> bool:
        """Overwrite outputs with stored tensors; whether some, of another type or shape, are others now."""
        others = False
        for slot, name, group in self.puts.get(index, ()):
            if group in self.refused or slot >= len(slots):
                continue
            stored, tensor = torch.load(name), slots[slot]
            if _type(stored) == _type(tensor):
                if digest(stored) == digest(tensor):
                    continue
                try:
                    tensor.data.copy_(stored)
                except RuntimeError:  # some sparse ones cannot
                    continue
            elif mutated:
                continue
            else:
                slots[slot], others = stored, True
            line.setdefault("put", []).append(slot)
        return others

    def _outputs(
        self, index: int, operator: Operator, slots: list[Any], mutated: list[Any], inputs: list[Any], put: Any
    ) -> list[Any]:
        """Of what came back, and then of what was written to and did not come back. What was put is written, too."""
        known = {id(self.storages.of(tensor)) for tensor in inputs}
        records = []
        for slot, tensor in enumerate(slots):
            state = self.storages.of(tensor)
            written = slot in put or (any(tensor is each for each in mutated) and not operator.blank)
            view = state is not None and id(state) in known and not written
            if state is not None and not view:
                state.written((index, slot))
                state.blank = operator.blank and not written
            if state is not None:
                state.made[geometry(tensor)] = (index, slot)
            records.append(self._output(tensor, view))
            if state is not None and not view:
                self.alive.append((state, index, slot))
        for slot in self.store.get(index, ()):
            torch.save(slots[slot].detach().clone(), os.path.join(self.out, f"{index}-{slot}.pt"))
        self.programs.after(index, slots)
        return records

    def _output(self, tensor: Any, view: bool) -> list[Any]:
        """A view is not digested before it is read: no operator has computed it."""
        if view:
            return ["", _type(tensor), list(_stride(tensor)), None]
        made = self.storages.digest(tensor)
        made = "" if made == UNKNOWN else made
        row = None
        if made and tensor.layout is torch.strided and (tensor.is_floating_point() or tensor.is_complex()):
            self.sketches.write(sketch(tensor))
            row, self.rows = self.rows, self.rows + 1
        return [made, _type(tensor), list(_stride(tensor)), row]

    def where_raised(self, error: BaseException) -> dict[str, Any]:
        """Where the exception that ended the script comes from: the user's line, the function that it calls, the
        operator, if one raised it, and what that was given."""
        line, called, inside = self.places.lines.of(error)
        by_operator = self.raising if self.raised is error else {"operator": "", "given": []}
        inside = inside or bool(by_operator["operator"])
        return {"line": line, "function": called if inside else "", "lacks": _lacks(error), **by_operator}

    def close(self) -> dict[str, Any]:
        """What is told of the whole: `alive`, the outputs that the script still held when it ended, or that operators
        outside of the part read; `elsewhere`, the numbers that left PyTorch outside of it."""
        self.places.close()
        self.methods.remove()
        self.file.close()
        self.sketches.close()
        held = {(op, slot) for state, op, slot in self.alive if state.last == (op, slot) and not state.alive.expired()}
        told = {"alive": sorted(held | self.handed), "elsewhere": self.elsewhere, "notes": sorted(self.notes)}
        part = self.places.part
        if self.full:
            return {**told, "unsupported": FULL}
        return told if self.count or part.is_all else {**told, "unsupported": part.missed()}


def _type(tensor: Any) -> str:
    return "{}[{}]".format(str(tensor.dtype)[6:], ", ".join(map(str, tensor.shape)))


def _stride(tensor: Any) -> Any:
    return tensor.stride() if tensor.layout == torch.strided else ()


def _lacks(error: BaseException) -> bool:
    """Whether PyTorch itself is said to have no such name or module."""
    if isinstance(error, ImportError):
        return (error.name or "").partition(".")[0] == "torch"
    return isinstance(error, AttributeError) and is_of_pytorch(getattr(error, "obj", None))
