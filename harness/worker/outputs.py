"""What a problem's model returns, as tensors by name, and gradients beside them.

A tensor is the one output, without a name. Of a tuple, list, dict or named tuple each tensor is an output of its own:
``values``, ``0``, ``state.hidden``. A number is a tensor without dimensions. A complex tensor is told by its real and
imaginary parts, in a last dimension of two. None is no output.
"""

from __future__ import annotations

import inspect
import types
from typing import Any, Callable, Dict, Iterator, Mapping, NamedTuple, Sequence

import numpy as np
import torch

from . import dtypes, inputs, protocol, tensors, wire

Outputs = Dict[str, Any]  # tensors by name
DIRECTIONS = 20240611  # seed of what gradients are taken along
SERVES_ONCE = "backward cannot be called a second time on the same graph"


def named(value: Any) -> Outputs:
    """`wire.Failed`, unsupported, where something else is returned, or nothing."""
    found = dict(_named(value, ""))
    if not found:
        raise wire.Failed(protocol.UNSUPPORTED, f"returns {type(value).__name__} without a tensor in it")
    return found


def main(dtype_of: Mapping[str, str]) -> str:
    """The name of the output that stands for all where one must, of those with these dtypes: the first of numbers with
    a fraction, else the first."""
    return next((name for name, dtype in dtype_of.items() if dtype in dtypes.FLOATING), next(iter(dtype_of), ""))


def _named(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, torch.Tensor):
        yield name, _plain(value, name)
    elif isinstance(value, (bool, int, float)):
        yield name, torch.tensor(value)
    elif value is not None:
        if isinstance(value, dict):
            parts: Any = value.items()
        elif isinstance(value, (list, tuple)):
            parts = zip(_fields(value), value)
        else:
            raise wire.Failed(protocol.UNSUPPORTED, f"returns {type(value).__name__}: tensors and numbers are compared")
        for key, item in parts:
            yield from _named(item, f"{name}.{key}" if name else str(key))


def _fields(value: Sequence[Any]) -> Sequence[Any]:
    """The names of a tuple's items; of PyTorch's own (torch.return_types) they are members of its type."""
    own = getattr(value, "_fields", None)
    members = [k for k, v in vars(type(value)).items() if isinstance(v, types.MemberDescriptorType)]
    return own or (members if len(members) == len(value) else range(len(value)))


def _plain(tensor: Any, name: str) -> Any:
    if tensor.layout is not torch.strided or tensor.is_quantized:
        kind = "quantized" if tensor.is_quantized else str(tensor.layout).replace("torch.", "")
        raise wire.Failed(protocol.UNSUPPORTED, f"returns a {kind} tensor{f' {name}' if name else ''}")
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    if tensors.dtype_name(tensor) not in dtypes.STORAGE:
        raise wire.Failed(protocol.UNSUPPORTED, f"returns {tensor.dtype}, which cannot be compared")
    return tensor


def layout(tensor: Any) -> str:
    """How its elements lie in memory, in the words of PyTorch."""
    if tensor.is_contiguous():
        return "contiguous"
    for dimensions, name in ((4, "channels_last"), (5, "channels_last_3d")):
        if tensor.dim() == dimensions and tensor.is_contiguous(memory_format=getattr(torch, name)):
            return name
    return "strides ({})".format(", ".join(map(str, tensor.stride())))


# -- gradients ----------------------------------------------------------------------------------------------


class Graph(NamedTuple):
    """What a forward call leaves for its backward pass. `leaves`: what gradients are of, by name; `roots`: the outputs
    that have some; `along`: a direction for each root."""

    outputs: Outputs
    leaves: Outputs
    roots: list[Any]
    along: list[Any]

    def step(self) -> Outputs:
        """The outputs, and the gradients along the directions."""
        plain = {name or "output": tensor.detach() for name, tensor in self.outputs.items()}
        return {**plain, **self.gradients()}

    def gradients(self, kept: bool = False) -> Outputs:
        """`grad of x`, by autograd; None for what has none. `kept`: the graph, for another time."""
        leaves = list(self.leaves.values())
        found = torch.autograd.grad(self.roots, leaves, self.along, retain_graph=kept, allow_unused=True)
        return {f"grad of {name}": gradient for name, gradient in zip(self.leaves, found)}

    def backward(self) -> Callable[[], Outputs]:
        """The backward pass by itself, as often as one likes. `wire.Failed`, not run, where the graph serves once."""
        try:
            once, again = (self.gradients(kept=True) for _ in range(2))
        except Exception as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            message = f"{SERVES_ONCE}: {lines[0]}"[: protocol.MESSAGE_CHARACTERS]
            raise wire.Failed(protocol.NOT_RUN, message) from None
        if not all(_alike(one, again[name]) for name, one in once.items()):
            raise wire.Failed(protocol.NOT_RUN, f"{SERVES_ONCE}: the second time it gives other gradients")
        return lambda: self.gradients(kept=True)


def _alike(one: Any, other: Any) -> bool:
    return one is other if one is None or other is None else tensors.alike(one, other)


def graph(directions: Directions, model: Any, arguments: Sequence[Any]) -> Graph:
    """Of a call of the model: gradients are of every floating-point input and parameter. They are taken along
    directions that are drawn once, and are the same bytes everywhere: along ones, as of a sum, those of softmax and
    normalisations vanish."""
    with torch.enable_grad():
        given = [tensors.each_float(value, lambda tensor: tensor.detach().requires_grad_()) for value in arguments]
        outputs = named(model(*given))
        leaves = {**_leaves(model, given), **{name: p for name, p in model.named_parameters() if p.requires_grad}}
        roots = {name: tensor for name, tensor in outputs.items() if tensor.requires_grad}
        if not roots:
            raise wire.Failed(protocol.UNSUPPORTED, "returns nothing that has a gradient")
        along = [directions.of(number, tensor) for number, tensor in enumerate(roots.values())]
    return Graph(outputs, leaves, list(roots.values()), along)


def _leaves(model: Any, given: Sequence[Any]) -> Outputs:
    """The floating-point tensors among arguments, by the parameters of `forward`."""
    names = list(getattr(model, "names", ()))  # an operator's
    if not names:
        names = list(inspect.signature(model.forward).parameters)
    found: Outputs = {}
    for number, value in enumerate(given):
        own = [tensor for tensor in tensors.flat([value]) if tensor.is_floating_point()]
        name = names[number] if number < len(names) else f"argument {number + 1}"
        found.update({name if len(own) == 1 else f"{name}[{at}]": tensor for at, tensor in enumerate(own)})
    return found


class Directions:
    """Approximately normal numbers for each output, rounded to the workload's dtype: the same for its float64 truth."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.made: dict[Any, Any] = {}

    def of(self, number: int, like: Any) -> Any:
        """A tensor of the output's shape, dtype and device."""
        key = number, tuple(like.shape), like.dtype, like.device
        if key not in self.made:  # by numpy: what PyTorch rounds may be another's to compute
            drawn = inputs.deviates(DIRECTIONS, number, 0, like.numel()).astype(np.float64)
            rounded = dtypes.quantise(drawn, self.dtype).reshape(tuple(like.shape))
            self.made[key] = torch.from_numpy(rounded).to(device=like.device, dtype=like.dtype)
        return self.made[key]
