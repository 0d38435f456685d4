"""What the schema of an operator says, and its arguments as a flat list."""

from __future__ import annotations

from typing import Any, Iterator

import torch

from .digest import UNKNOWN

ALLOCATORS = ("empty", "new_empty", "_empty")  # what allocates begins so, and writes nothing
UNDECLARED = ("running_mean", "running_var")  # written by batch normalisation in training, without a mark


class OperatorSchema:
    """Facts of an overload, read once."""

    def __init__(self, overload: Any) -> None:
        schema = overload._schema
        self.full_name: str = schema.name + ("." + schema.overload_name if schema.overload_name else "")
        self.name = self.full_name[len("aten::") :] if self.full_name.startswith("aten::") else self.full_name
        base = schema.name.partition("::")[2]
        self.allocates = base.startswith(ALLOCATORS)
        self.draws = torch.Tag.nondeterministic_seeded in overload.tags
        self.takes_value = base == "_local_scalar_dense"
        self.written = [
            (position, argument.name)
            for position, argument in enumerate(schema.arguments)
            if (argument.alias_info is not None and argument.alias_info.is_write)
            or (argument.name in UNDECLARED and "backward" not in base)
        ]


def written_tensors(written: Any, args: Any, kwargs: Any) -> list[Any]:
    """Return the tensors that a call writes to; `written` is as `OperatorSchema` has it."""
    tensors: list[Any] = []
    for position, name in written:
        flatten(args[position] if position < len(args) else kwargs.get(name), tensors)
    return tensors


def number_slots(outputs: list[Any], written: list[Any]) -> list[Any]:
    """Return what a call returned, and then what it wrote to and did not return: the position is the slot."""
    return outputs + [tensor for tensor in written if all(tensor is not output for output in outputs)]


def find_generator(args: Any, kwargs: Any) -> Any:
    """Return what a random operator draws from: the generator that it is given, or PyTorch's own for its device."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Generator):
            return value
    if kwargs.get("device") is not None:
        return default_generator(torch.device(kwargs["device"]))
    tensors: list[Any] = []
    flatten((args, kwargs), tensors)
    return default_generator(tensors[0].device if tensors else torch.device("cpu"))


def default_generator(device: Any) -> Any:
    """Return PyTorch's own generator of a device."""
    if device.type != "cuda":
        return torch.default_generator
    torch.cuda.init()
    return torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]


def rebuild(value: Any, tensors: Iterator[Any]) -> Any:
    """Return the value with these tensors in place of its own, in the order of `flatten`."""
    if isinstance(value, torch.Tensor):
        return next(tensors)
    if isinstance(value, (list, tuple)):
        return type(value)([rebuild(item, tensors) for item in value])
    if isinstance(value, dict):
        return {name: rebuild(value[name], tensors) for name in sorted(value)}
    return value


def flatten(value: Any, tensors: list[Any], scalars: list[str] | None = None) -> None:
    """Append the tensors in a value, in order, and the text of all else that an operator is called with."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            flatten(item, tensors, scalars)
    elif isinstance(value, dict):
        for name in sorted(value):
            flatten(value[name], tensors, scalars)
    elif scalars is not None and not isinstance(value, torch.Generator):
        # A script object is one such as the packed weights of a quantised layer.
        scalars.append(UNKNOWN if isinstance(value, torch.ScriptObject) else repr(value))
