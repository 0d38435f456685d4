"""Operators with their inputs, stored so that they can run again alone: a program.

A program is a list of calls. A tensor in a call is stored, or refers to the output of an earlier call of the program.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

import torch

from .digest import digest
from .operators import OperatorSchema, default_generator, find_generator, flatten, number_slots, written_tensors
from .storages import Storages

STORED, EARLIER = "stored tensor", "output of an earlier call"
REPEATS = 3


class Programs:
    """Stores the programs that a request names: `name`, `operators` (indices, ascending) and `outputs` (to be kept, as
    [operator, slot])."""

    def __init__(self, requested: list[dict[str, Any]], out: str) -> None:
        self.out = out
        self.by_operator: dict[int, list[dict[str, Any]]] = {}
        for program in requested:
            program.update(calls=[], values={})
            for index in program["operators"]:
                self.by_operator.setdefault(index, []).append(program)

    def store_call(self, index: int, operator: OperatorSchema, args: Any, kwargs: Any, storages: Storages) -> None:
        """Store an operator's arguments, before it runs."""
        for program in self.by_operator.get(index, ()):
            own = frozenset(program["operators"])
            generator = find_generator(args, kwargs) if operator.draws else None
            program["generator"] = generator
            call = {
                "index": index,
                "name": operator.full_name,
                "args": [_pack(value, own, storages) for value in args],
                "kwargs": {name: _pack(value, own, storages) for name, value in kwargs.items()},
                "written": operator.written,
                "state": None if generator is None else generator.get_state(),
                "device": "cpu" if generator is None else str(generator.device),
            }
            program["calls"].append(call)

    def store_outputs(self, index: int, tensors: list[Any]) -> None:
        """Store an operator's outputs; the last operator of a program writes the program's file."""
        for program in self.by_operator.get(index, ()):
            call, values = program["calls"][-1], program["values"]
            if call["state"] is not None and torch.equal(call["state"], program["generator"].get_state()):
                call["state"] = None  # it could have drawn, and did not
            values.update(
                {(op, slot): tensors[slot].detach().clone() for op, slot in program["outputs"] if op == index}
            )
            if index == program["operators"][-1]:
                contents = {"calls": program["calls"], "outputs": values}
                # The protocol that is usual here cannot write a memory format.
                torch.save(contents, os.path.join(self.out, program["name"] + ".pt"), pickle_protocol=4)


def _pack(value: Any, own: frozenset[int], storages: Storages) -> Any:
    if isinstance(value, torch.Tensor):
        source = storages.find_source(value)
        if source is not None and source[0] in own:
            return (EARLIER, source[0], source[1], tuple(value.shape))
        return (STORED, value.detach().clone())
    if isinstance(value, (list, tuple)):
        return type(value)(_pack(item, own, storages) for item in value)
    return None if isinstance(value, torch.Generator) else value


def _unpack(value: Any, outputs: dict[Any, Any], exact: bool) -> Any:
    if isinstance(value, tuple) and value and value[0] == EARLIER:
        return outputs[value[1], value[2]].reshape(value[3])
    if isinstance(value, tuple) and value and value[0] == STORED:
        return value[1].double() if exact and value[1].is_floating_point() else value[1].clone()
    if isinstance(value, (list, tuple)):
        return type(value)(_unpack(item, outputs, exact) for item in value)
    return torch.float64 if exact and isinstance(value, torch.dtype) and value.is_floating_point else value


def run(program: dict[str, Any], exact: bool = False) -> dict[Any, Any]:
    """Return the outputs that the program gives here and now; `exact`: with all that is floating in float64."""
    outputs: dict[Any, Any] = {}
    for call in program["calls"]:
        if call["state"] is not None:
            default_generator(torch.device(call["device"])).set_state(call["state"])
        namespace, _, name = call["name"].partition("::")
        name, _, overload = name.partition(".")
        function = getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")
        args = [_unpack(value, outputs, exact) for value in call["args"]]
        kwargs = {key: _unpack(value, outputs, exact) for key, value in call["kwargs"].items()}
        returned: list[Any] = []
        with torch.no_grad():
            flatten(function(*args, **kwargs), returned)
        slots = number_slots(returned, written_tensors(call["written"], args, kwargs))
        outputs.update({(call["index"], slot): tensor for slot, tensor in enumerate(slots)})
    return {slot: outputs[slot] for slot in program["outputs"]}


def replay(request: dict[str, Any]) -> dict[str, Any]:
    """Run each program three times, and once in float64: its values and the float64 ones go to files, as float64.

    An entry of the result has `repeats` (digests of each time), `outputs` (dtype and shape of each output), and `error`
    and `exact_error`, where PyTorch refused.
    """
    results: dict[str, dict[str, Any]] = {}
    for name, path in request["programs"].items():
        program = torch.load(path, weights_only=False)
        result = results[name] = {"repeats": [], "error": "", "exact_error": "", "outputs": []}
        stem = os.path.join(request["out"], name)
        try:
            runs = [list(run(program).values()) for _ in range(REPEATS)]
            result["repeats"] = [list(map(digest, tensors)) for tensors in runs]
            result["outputs"] = [[str(tensor.dtype)[6:], list(tensor.shape)] for tensor in runs[0]]
            _write_values(f"{stem}-value", runs[0])
        except Exception as error:
            result["error"] = f"{type(error).__name__}: {str(error)[:500]}"
        try:
            _write_values(f"{stem}-exact", list(run(program, exact=True).values()))
        except Exception as error:
            result["exact_error"] = f"{type(error).__name__}: {str(error)[:500]}"
    return results


def _write_values(stem: str, tensors: list[Any]) -> None:
    for number, tensor in enumerate(tensors):
        values = tensor.detach().double().cpu().contiguous()
        with open(f"{stem}-{number}.f64", "wb") as file:
            file.write(ctypes.string_at(values.data_ptr(), values.numel() * 8) if values.numel() else b"")
