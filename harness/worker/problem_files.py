"""What a problem gives: its Model, and the inputs that it makes.

A problem is a file, or an operator of PyTorch in its place. Which tensors an operator is given, and what else, stands
in the request; their elements are drawn as those of a file.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import inspect
import os
import sys
from functools import reduce
from typing import TYPE_CHECKING, Any, Callable, Iterator, List, Sequence

import torch

from . import draws, layouts, protocol, tensors, wire
from .blame import enters_subject

if TYPE_CHECKING:
    from .dtypes import Array
    from .inputs import Each


@enters_subject
def load_module(path: str) -> Any:
    stem = os.path.splitext(os.path.basename(path))[0]  # messages name the module
    name = f"{stem}_" + hashlib.sha256(os.path.abspath(path).encode()).hexdigest()[:16]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def module_of(path: str, operator: wire.OperatorRequest | None) -> Any:
    """Return what has Model, get_inputs and get_init_inputs: a file, or an operator."""
    return load_module(path) if operator is None else OperatorModule(operator)


@enters_subject
def construct(model: Callable[..., Any], initial: Sequence[Any]) -> Any:
    """Return an instance by KernelBench's convention: positional, or, for one dict, by keyword."""
    if len(initial) == 1 and isinstance(initial[0], dict):
        return model(**initial[0])
    return model(*initial)


class Inputs(List["Array"]):
    """The arrays of a trial's tensors, in order, which share memory with those in `values`, the whole arguments.

    `continuous`: of each, whether its elements are floating-point numbers that were drawn one by one.
    """

    def __init__(self, values: list[Any], continuous: Sequence[bool] = ()) -> None:
        held = list(tensors.flat(values))
        super().__init__(tensors.to_array(tensor) for tensor in held)
        self.values = values
        drawn = continuous or [False] * len(held)
        self.continuous = [one and tensor.is_floating_point() for one, tensor in zip(drawn, held)]


def made(module: Any, seed: int, trial: int, dtype: str, each: Each = map) -> tuple[list[Any], list[str], list[bool]]:
    """Return (a trial's arguments on the CPU, names of what `draws` does not answer for, of each tensor whether it is
    continuous there): floating-point tensors are cast to the dtype, all others stay what they are."""
    values, foreign, continuous = draws.make(module.get_inputs, seed, trial, each)
    cast = tensors.each_float(values, lambda tensor: tensor.to(getattr(torch, dtype)))
    contiguous = [tensors.each_tensor(value, lambda tensor: tensor.detach().contiguous()) for value in cast]
    return contiguous, foreign, continuous


def with_arrays(like: Inputs, arrays: Sequence[Array]) -> Inputs:
    """Return a problem's arguments with these arrays for tensors."""
    dtypes_of = map(tensors.dtype_name, tensors.flat(like.values))
    made = iter([tensors.to_tensor(array, dtype, "cpu") for array, dtype in zip(arrays, dtypes_of)])
    return Inputs(tensors.each_tensor(like.values, lambda _: next(made)))


# -- operators --------------------------------------------------------------------------------------------


def missing(name: str) -> wire.Failed:
    """Return the failure of an operator that this PyTorch lacks."""
    module, _, last = name.rpartition(".")
    words = f"PyTorch {torch.__version__.partition('+')[0]} has no {name}"
    try:
        known = [each for each in dir(find(module)) if each.strip("_") == each]
    except wire.Failed:
        known = []
    near = difflib.get_close_matches(last, known, 1, 0.75)
    words += f"; did you mean {module}.{near[0]}?" if near else ""
    return wire.Failed(protocol.UNSUPPORTED, words, failure=protocol.FailureKind.MISSING_OPERATOR)


def find(name: str) -> Any:
    """Return what is called so; `wire.Failed`, unsupported, where this PyTorch lacks it."""
    try:
        return reduce(getattr, name.split(".")[1:], torch)
    except AttributeError:
        raise missing(name) from None


class OperatorModel(torch.nn.Module):  # type: ignore[misc]
    """A model that calls an operator, and holds nothing. Tensors that have a name are given by that; the others stand
    in their order."""

    def __init__(self, request: wire.OperatorRequest) -> None:
        super().__init__()
        self.request = request
        self.constants = {
            name: find(value) if isinstance(value, str) and value.startswith("torch.") else value
            for name, value in request.arguments.items()
        }

    @property
    def without_gradient(self) -> set[int]:
        """Return the places among its tensors of those that have none."""
        return {place for place, each in enumerate(_each(self.request)) if not each.requires_grad}

    @property
    def names(self) -> list[str]:
        """Return the names of its tensors, as errors and gradients have them."""
        given = [each.name for each in self.request.tensors]
        if all(given):
            return given
        try:
            own = list(inspect.signature(find(self.request.name)).parameters)
        except (TypeError, ValueError):  # most are not Python's
            own = []
        own = own if len(given) == 1 or not self.constants else []  # numbers may stand between them
        return own[: len(given)] or [f"tensor {number}" for number in range(1, len(given) + 1)]

    def forward(self, *given: Any) -> Any:
        return self.bound()(*given)

    def bound(self) -> Callable[..., Any]:
        """Return the call alone, which is all that torch.compile is to see."""
        call, constants = find(self.request.name), self.constants
        names = [each.name for each in self.request.tensors]
        in_order = [number for number, name in enumerate(names) if not name]
        named = [(name, number) for number, name in enumerate(names) if name]

        @enters_subject
        def run(*given: Any) -> Any:
            return call(*[given[n] for n in in_order], **{name: given[n] for name, n in named}, **constants)

        return run


class OperatorModule:
    """An operator in the place of a problem file's module."""

    def __init__(self, request: wire.OperatorRequest) -> None:
        self.request = request

    def Model(self) -> OperatorModel:
        return OperatorModel(self.request)

    def get_init_inputs(self) -> list[Any]:
        return []

    def get_inputs(self) -> list[Any]:
        made = [[drawn(each) for each in argument.tensors] for argument in self.request.tensors]
        return [own if argument.several else own[0] for argument, own in zip(self.request.tensors, made)]


def _each(request: wire.OperatorRequest) -> Iterator[wire.TensorRequest]:
    return (tensor for argument in request.tensors for tensor in argument.tensors)


def lay_out(request: wire.OperatorRequest | None, arguments: Sequence[Any], contiguous: bool = False) -> list[Any]:
    """Return the arguments that the operator is called with: views of what was `drawn`, or `contiguous` copies of
    these. A problem file's are as they are."""
    if request is None:
        return list(arguments)
    each = _each(request)

    def view(tensor: Any) -> Any:
        own = next(each)
        found = tensor[own.offset :].as_strided(own.shape, own.strides) if own.strides else tensor
        return found.contiguous() if contiguous else found

    return [tensors.each_tensor(value, view) for value in arguments]


def drawn(request: wire.TensorRequest) -> Any:
    """Return a tensor of the values that are asked for, in float32 where they are numbers with a fraction. Of one that
    has strides, all its memory in one dimension: inputs are stored, copied and compared like that."""
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
