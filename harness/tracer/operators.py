"""What the schema of an operator says, and its arguments as a flat list."""

from __future__ import annotations

from typing import Any, Iterator

import torch

from .digest import UNKNOWN

EMPTY = ("empty", "new_empty", "_empty")  # what allocates begins so, and writes nothing
UNDECLARED = ("running_mean", "running_var")  # written by batch normalisation in training, without a mark


class Operator:
    """Facts of an overload, asked once."""

    def __init__(self, overload: Any) -> None:
        schema = overload._schema
        self.name: str = schema.name + ("." + schema.overload_name if schema.overload_name else "")
        base = schema.name.partition("::")[2]
        self.blank = base.startswith(EMPTY)
        self.random = torch.Tag.nondeterministic_seeded in overload.tags
        self.takes_value = base == "_local_scalar_dense"
        arguments = list(schema.arguments)
        self.written = [
            (place, argument.name)
            for place, argument in enumerate(arguments)
            if (argument.alias_info is not None and argument.alias_info.is_write)
            or (argument.name in UNDECLARED and "backward" not in base)
        ]

    def mutated(self, args: Any, kwargs: Any) -> list[Any]:
        """The tensors that it writes to."""
        found: list[Any] = []
        for place, name in self.written:
            flatten(args[place] if place < len(args) else kwargs.get(name), found)
        return found


def generator_of(args: Any, kwargs: Any) -> Any:
    """What a random operator draws from: the generator that it is given, or else PyTorch's own for its device."""
    given = (each for each in (*args, *kwargs.values()) if isinstance(each, torch.Generator))
    return next(given, None) or own_generator(_device(args, kwargs))


def own_generator(device: Any) -> Any:
    """PyTorch's own generator of a device."""
    if device.type != "cuda":
        return torch.default_generator
    torch.cuda.init()
    return torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]


def _device(args: Any, kwargs: Any) -> Any:
    """Where an operator runs: the device that it is asked for, or else that of its first tensor."""
    asked = kwargs.get("device")
    if asked is not None:
        return torch.device(asked)
    tensors: list[Any] = []
    flatten((args, kwargs), tensors)
    return tensors[0].device if tensors else torch.device("cpu")


def rebuilt(value: Any, tensors: Iterator[Any]) -> Any:
    """The value with these tensors in place of its own, in the order of `flatten`."""
    if isinstance(value, torch.Tensor):
        return next(tensors)
    if isinstance(value, (list, tuple)):
        return type(value)([rebuilt(each, tensors) for each in value])
    if isinstance(value, dict):
        return {name: rebuilt(value[name], tensors) for name in sorted(value)}
    return value


def flatten(value: Any, tensors: list[Any], scalars: list[str] | None = None) -> None:
    """Append the tensors in a value, in order, and the text of all else that an operator is called with."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
    elif isinstance(value, (list, tuple)):
        for each in value:
            flatten(each, tensors, scalars)
    elif isinstance(value, dict):
        for name in sorted(value):
            flatten(value[name], tensors, scalars)
    elif isinstance(value, torch.ScriptObject):  # such as the packed weights of a quantised layer
        if scalars is not None:
            scalars.append(UNKNOWN)
    elif scalars is not None and not isinstance(value, torch.Generator):
        scalars.append(repr(value))
