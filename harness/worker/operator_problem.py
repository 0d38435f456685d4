"""An operator of PyTorch as a problem: its model calls the operator, and holds nothing.

Which tensors it is given, and what else, stands in the request. Their elements are drawn as those of a problem file.
"""

from __future__ import annotations

import difflib
import inspect
from functools import reduce
from typing import Any, Callable, Iterator, Sequence

import torch

from . import layouts, protocol, tensors, wire
from .blame import enters_subject


def missing(name: str) -> wire.Failed:
    """This PyTorch lacks it."""
    module, _, last = name.rpartition(".")
    words = f"PyTorch {torch.__version__.partition('+')[0]}{protocol.HAS_NO}{name.partition('.')[2]}"
    try:
        known = [each for each in dir(found(module)) if each.strip("_") == each]
    except wire.Failed:
        known = []
    near = difflib.get_close_matches(last, known, 1, 0.75)
    return wire.Failed(protocol.UNSUPPORTED, words + (f"; did you mean {module}.{near[0]}?" if near else ""))


def found(name: str) -> Any:
    """What is called so; `wire.Failed`, unsupported, where this PyTorch lacks it."""
    try:
        return reduce(getattr, name.split(".")[1:], torch)
    except AttributeError:
        raise missing(name) from None


class Operator(torch.nn.Module):  # type: ignore[misc]
    """Calls it. Of tensors that have a name each is given by that; the others stand in their order."""

    def __init__(self, request: wire.OperatorRequest) -> None:
        super().__init__()
        self.request = request
        self.constants = {
            name: found(value) if isinstance(value, str) and value.startswith("torch.") else value
            for name, value in request.arguments.items()
        }

    @property
    def without_gradient(self) -> set[int]:
        """Places among its tensors of those that have none."""
        return {place for place, each in enumerate(_each(self.request)) if not each.requires_grad}

    @property
    def names(self) -> list[str]:
        """Of its tensors, as errors and gradients name them."""
        given = [each.name for each in self.request.tensors]
        if all(given):
            return given
        try:
            own = list(inspect.signature(found(self.request.name)).parameters)
        except (TypeError, ValueError):  # most are not Python's
            own = []
        own = own if len(given) == 1 or not self.constants else []  # numbers may stand between them
        return own[: len(given)] or [f"tensor {number}" for number in range(1, len(given) + 1)]

    def forward(self, *tensors: Any) -> Any:
        return self.bound()(*tensors)

    def bound(self) -> Callable[..., Any]:
        """The call alone, which is all that torch.compile is to see."""
        call, constants = found(self.request.name), self.constants
        names = [each.name for each in self.request.tensors]
        in_order = [number for number, name in enumerate(names) if not name]
        named = [(name, number) for number, name in enumerate(names) if name]

        @enters_subject
        def run(*tensors: Any) -> Any:
            return call(*[tensors[n] for n in in_order], **{name: tensors[n] for name, n in named}, **constants)

        return run


class OperatorProblem:
    """What a problem file's module has."""

    def __init__(self, request: wire.OperatorRequest) -> None:
        self.request = request

    def Model(self) -> Operator:
        return Operator(self.request)

    def get_init_inputs(self) -> list[Any]:
        return []

    def get_inputs(self) -> list[Any]:
        made = [[drawn(each) for each in argument.tensors] for argument in self.request.tensors]
        return [own if argument.several else own[0] for argument, own in zip(self.request.tensors, made)]


def _each(request: wire.OperatorRequest) -> Iterator[wire.TensorRequest]:
    return (tensor for argument in request.tensors for tensor in argument.tensors)


def laid_out(request: wire.OperatorRequest | None, arguments: Sequence[Any], contiguous: bool = False) -> list[Any]:
    """The arguments that the operator is called with: views of what was `drawn`, or `contiguous` copies of these. A
    problem file's are as they are."""
    if request is None:
        return list(arguments)
    each = _each(request)

    def view(tensor: Any) -> Any:
        own = next(each)
        found = tensor[own.offset :].as_strided(own.shape, own.strides) if own.strides else tensor
        return found.contiguous() if contiguous else found

    return [tensors.each_tensor(value, view) for value in arguments]


def drawn(request: wire.TensorRequest) -> Any:
    """A tensor of the values that are asked for, in float32 where they are numbers with a fraction. Of one that has
    strides, all its memory in one dimension: inputs are stored, copied and compared like that."""
    shape, values = request.shape, request.values
    if request.strides:
        shape = [layouts.elements(shape, request.strides, request.offset)]
    if values == "integers":
        return torch.randint(0, request.below, shape)
    if values == "boolean":
        return torch.rand(shape) < 0.5
    if values == "uniform":
        return torch.rand(shape)
    if values == "positive":
        return torch.rand(shape) + 2.0**-10  # which float16 holds too, and no operator finds singular
    if values == "positive_definite":  # symmetric, with a diagonal that outweighs the rest
        square = torch.rand(shape)
        return (square + square.transpose(-1, -2)) / 2 + shape[-1] * torch.eye(shape[-1])
    return torch.randn(shape)
