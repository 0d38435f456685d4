"""What problem files give: their classes, and the inputs that they make."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Any, Callable, List, Sequence

import torch

from . import draws, operator_problem, tensors
from .blame import enters_subject

if TYPE_CHECKING:
    from . import wire
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
    """Who has Model, get_inputs and get_init_inputs: a file, or an operator."""
    return load_module(path) if operator is None else operator_problem.OperatorProblem(operator)


@enters_subject
def construct(model: Callable[..., Any], initial: Sequence[Any]) -> Any:
    """An instance by KernelBench's convention: positional, or, for one dict, by keyword."""
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
    """(a trial's arguments on the CPU, names of what `draws` does not answer for, of each tensor whether it is
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
