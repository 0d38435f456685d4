"""What a problem's model returns, as tensors by name, and gradients beside them.

A tensor is the one output, without a name. Of a tuple, list, dict or named tuple each tensor is an output of its own:
``values``, ``0``, ``state.hidden``. A number is a tensor without dimensions. A complex tensor is told by its real and
imaginary parts, in a last dimension of two. None is no output.
"""

from __future__ import annotations

import inspect
import itertools
import math
import types
from typing import Any, Callable, Dict, Iterator, Mapping, NamedTuple, Sequence

import numpy as np
import torch

from . import dtypes, inputs, layouts, protocol, tensors, wire
from .blame import enters_subject

Outputs = Dict[str, Any]  # tensors by name
Writes = Mapping[int, str]  # inputs that a model writes to: places among the tensors of its arguments, to names
DIRECTIONS = 20240611  # seed of what gradients are taken along
SERVES_ONCE = "backward cannot be called a second time on the same graph"


def named(value: Any) -> Outputs:
    """`wire.Failed`, unsupported, where something else is returned, or nothing."""
    return {name: _plain(tensor, name) for name, tensor in _returned(value).items()}


def _returned(value: Any) -> Outputs:
    """Return the tensors as they are: complex ones, too."""
    found = dict(_named(value, ""))
    if not found:
        raise wire.Failed(protocol.UNSUPPORTED, f"returns {type(value).__name__} without a tensor in it")
    return found


def main(dtype_of: Mapping[str, str]) -> str:
    """The name of the output that stands for all where one must, of those with these dtypes: the first of numbers with
    a fraction, else the first. What is written to inputs stands for all only where nothing is returned."""
    returned = {name: dtype for name, dtype in dtype_of.items() if not name.startswith(protocol.WRITTEN)} or dtype_of
    return next((name for name, dtype in returned.items() if dtype in dtypes.FLOATING), next(iter(returned), ""))


def _named(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, torch.Tensor):
        yield name, value
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
    """Return how its elements lie in memory, in the words of PyTorch."""
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

    @enters_subject
    def gradients(self, kept: bool = False) -> Outputs:
        """`grad of x`, by autograd; None for what has none. `kept`: the graph, for another time."""
        leaves = list(self.leaves.values())
        found = torch.autograd.grad(self.roots, leaves, self.along, retain_graph=kept, allow_unused=True)
        return {protocol.GRADIENT + name: gradient for name, gradient in zip(self.leaves, found)}

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


@enters_subject
def graph(
    directions: Directions,
    model: Any,
    arguments: Sequence[Any],
    contiguous: bool = False,
    writes: Writes | None = None,
) -> Graph:
    """Of a call of the model: gradients are of every floating-point input, but for an operator's `without_gradient`,
    and every parameter. They are taken along directions that are drawn once, and are the same bytes everywhere: along
    ones, as of a sum, those of softmax and normalisations vanish. `contiguous`: whatever their layout. An input that
    the model `writes` to is a copy, because autograd refuses to write to what gradients are of."""
    places, without = itertools.count(), getattr(model, "without_gradient", ())

    def leaf(tensor: Any) -> Any:
        has_one = next(places) not in without and tensor.is_floating_point()
        return tensor.detach().requires_grad_(has_one)

    with torch.enable_grad():
        given = [tensors.each_tensor(value, leaf) for value in arguments]
        copies = copied(given, writes or {})
        returned = _returned(model(*copies))
        outputs = {name: _plain(tensor, name) for name, tensor in returned.items()}
        outputs.update(written(copies, writes or {}))
        leaves = {**_leaves(model, given), **{name: p for name, p in model.named_parameters() if p.requires_grad}}
        roots = {name: tensor for name, tensor in returned.items() if tensor.requires_grad}
        if not roots:
            raise wire.Failed(protocol.UNSUPPORTED, "returns nothing that has a gradient")
        along = [directions.of(number, tensor) for number, tensor in enumerate(roots.values())]
        along = [direction.contiguous() for direction in along] if contiguous else along
    return Graph(outputs, leaves, list(roots.values()), along)


@enters_subject
def _leaves(model: Any, given: Sequence[Any]) -> Outputs:
    """The tensors among arguments that have a gradient, by the parameters of `forward`."""
    return {name: tensor for name, tensor in by_argument(model, given).items() if tensor.requires_grad}


def by_argument(model: Any, given: Sequence[Any]) -> Outputs:
    """Return the tensors among arguments, by the parameters of `forward`."""
    names = list(getattr(model, "names", ()))  # an operator's
    if not names:
        names = list(inspect.signature(model.forward).parameters)
    found: Outputs = {}
    for number, value in enumerate(given):
        own = list(enumerate(tensors.flat([value])))
        name = names[number] if number < len(names) else f"argument {number + 1}"
        found.update({name if len(own) == 1 else f"{name}[{at}]": t for at, t in own})
    return found


def with_written(returned: Any, given: Sequence[Any], writes: Writes) -> Outputs:
    """Return the outputs of a call by name, and with them what it left in those of its arguments that it writes to: all
    there is where it returns None."""
    return {**({} if returned is None else named(returned)), **written(given, writes)}


def learn_writes(writes: dict[int, str], model: Any, before: Sequence[Any], given: Sequence[Any]) -> None:
    """Add what a call wrote to; `before` are copies of its arguments' tensors from before the call."""
    for place, (name, tensor) in enumerate(by_argument(model, given).items()):
        if not tensors.same_bits(before[place], tensor):
            writes[place] = name


def copied(given: Sequence[Any], writes: Writes) -> list[Any]:
    """Return the arguments with copies of the tensors that a model writes to."""
    places = itertools.count()
    return [tensors.each_tensor(value, lambda t: t.clone() if next(places) in writes else t) for value in given]


def written(given: Sequence[Any], writes: Writes) -> Outputs:
    held = list(tensors.flat(given))
    return {protocol.WRITTEN + name: _plain(held[place].detach(), name) for place, name in writes.items()}


class Directions:
    """Approximately normal numbers for each output, in the order of memory, rounded to the workload's dtype: the same
    for its float64 truth. Of a sum they are ones."""

    def __init__(self, dtype: str, layout: str = "") -> None:
        self.dtype, self.layout = dtype, layout
        self.made: dict[Any, Any] = {}

    def of(self, number: int, like: Any) -> Any:
        """A tensor of the output's shape, dtype and device. `wire.Failed` where the layout does not fit."""
        key = number, tuple(like.shape), like.dtype, like.device
        if key not in self.made:  # by numpy: what PyTorch rounds may be another's to compute
            self.made[key] = self._laid_out(number, like)
        return self.made[key]

    def _laid_out(self, number: int, like: Any) -> Any:
        if self.layout == layouts.SUM:
            return torch.ones((), dtype=like.dtype, device=like.device).expand(like.shape)
        shape = (*like.shape, 2) if like.is_complex() else tuple(like.shape)
        drawn = inputs.deviates(DIRECTIONS, number, 0, math.prod(shape)).astype(np.float64)
        rounded = torch.from_numpy(dtypes.quantise(drawn, self.dtype).reshape(shape))
        plain = torch.view_as_complex(rounded) if like.is_complex() else rounded
        plain = plain.to(device=like.device, dtype=like.dtype)
        if not self.layout:
            return plain
        try:
            steps = layouts.strides(self.layout, like.shape)
        except ValueError as error:
            words = f"is given no gradient: {error}; give `backward` another direction in matrix.yaml"
            raise wire.Failed(protocol.NOT_RUN, words) from None
        return plain.view(-1).as_strided(plain.shape, steps)
