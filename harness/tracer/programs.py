"""Operators with their inputs, stored so that they can run again alone: a program.

A program is a list of calls. A tensor in a call is stored, or refers to the output of an earlier call of the program.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from .operators import Operator, flatten, generator_of, own_generator
from .storages import Storages

STORED, EARLIER = "stored tensor", "output of an earlier call"


class Programs:
    """Stores the programs that a request names: `name`, `operators` (indices, ascending) and `keep` (outputs, as
    [operator, slot])."""

    def __init__(self, wanted: list[dict[str, Any]], out: str) -> None:
        self.out, self.wanted = out, wanted
        self.calls: dict[str, list[Any]] = {program["name"]: [] for program in wanted}
        self.outputs: dict[str, dict[Any, Any]] = {program["name"]: {} for program in wanted}
        self.generator: Any = None  # of the operator that runs now
        self.of: dict[int, list[dict[str, Any]]] = {}
        for program in wanted:
            for index in program["operators"]:
                self.of.setdefault(index, []).append(program)

    def before(self, index: int, operator: Operator, args: Any, kwargs: Any, storages: Storages) -> None:
        for program in self.of.get(index, ()):

            def put(value: Any, inside: frozenset[int] = frozenset(program["operators"])) -> Any:
                if isinstance(value, torch.Tensor):
                    source = storages.source(value)
                    if source is not None and source[0] in inside:
                        return (EARLIER, source[0], source[1], tuple(value.shape))
                    return (STORED, value.detach().clone())
                if isinstance(value, (list, tuple)):
                    return type(value)(map(put, value))
                return None if isinstance(value, torch.Generator) else value

            self.generator = generator_of(args, kwargs) if operator.random else None
            state = self.generator.get_state() if self.generator is not None else None
            call: dict[str, Any] = {"index": index, "name": operator.name, "args": list(map(put, args)), "state": state}
            call["device"] = "cpu" if self.generator is None else str(self.generator.device)  # of the generator
            call["kwargs"] = {name: put(value) for name, value in kwargs.items()}
            call["written"] = operator.written
            self.calls[program["name"]].append(call)

    def after(self, index: int, slots: list[Any]) -> None:
        for program in self.of.get(index, ()):
            call, outputs = self.calls[program["name"]][-1], self.outputs[program["name"]]
            if call["state"] is not None and torch.equal(call["state"], self.generator.get_state()):
                call["state"] = None  # it could have drawn, and did not
            outputs.update({(op, slot): slots[slot].detach().clone() for op, slot in program["keep"] if op == index})
            if index == program["operators"][-1]:
                made = {"calls": self.calls[program["name"]], "outputs": outputs}
                # The protocol that is usual here cannot write a memory format.
                torch.save(made, os.path.join(self.out, program["name"] + ".pt"), pickle_protocol=4)


def run(program: dict[str, Any], exact: bool = False) -> dict[Any, Any]:
    """The kept outputs, as the program gives them here and now; `exact`: with all that is floating in float64."""
    made: dict[Any, Any] = {}

    def take(value: Any) -> Any:
        if isinstance(value, tuple) and value and value[0] == EARLIER:
            return made[value[1], value[2]].reshape(value[3])
        if isinstance(value, tuple) and value and value[0] == STORED:
            return _exact(value[1]) if exact else value[1].clone()
        if isinstance(value, (list, tuple)):
            return type(value)(map(take, value))
        return torch.float64 if exact and isinstance(value, torch.dtype) and value.is_floating_point else value

    for call in program["calls"]:
        if call["state"] is not None:
            own_generator(torch.device(call["device"])).set_state(call["state"])
        namespace, _, name = call["name"].partition("::")
        name, _, overload = name.partition(".")
        args, kwargs = list(map(take, call["args"])), {key: take(value) for key, value in call["kwargs"].items()}
        slots: list[Any] = []
        mutated: list[Any] = []
        function = getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")
        with torch.no_grad():
            result = function(*args, **kwargs)
        flatten(result, slots)
        for place, key in call["written"]:
            flatten(args[place] if place < len(args) else kwargs.get(key), mutated)
        slots += [each for each in mutated if all(each is not other for other in slots)]
        made.update({(call["index"], slot): tensor for slot, tensor in enumerate(slots)})
    return {place: made[place] for place in program["outputs"]}


def _exact(tensor: Any) -> Any:
    return tensor.double() if tensor.is_floating_point() else tensor.clone()
