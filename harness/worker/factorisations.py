"""Operators that factorise matrices, solve equations or transform, and gradients and others whose single step stands
for many: how far they err.

A function here is given an `arithmetic.Call`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from . import tensors
from .arithmetic import THIRD

if TYPE_CHECKING:
    from .arithmetic import Call

PLAIN = ("linalg_vector_norm", "linalg_cross")
FUSED = ("gelu_backward", "silu_backward", "mish_backward", "softplus_backward", "elu_backward", "log_sigmoid_backward")
FACTORISED = ("cholesky", "cholesky_inverse", "cholesky_solve", "geqrf", "lu_unpack", "ormqr", "triangular_solve")


def steps(call: Call) -> int:
    """Roundings that an element meets, one after another, in a factorisation or a solution: as many as a matrix has
    columns. A stable algorithm gives what is exact for an input that was moved by as many, of either sign (Higham,
    Accuracy and Stability of Numerical Algorithms, 2002, chapters 9, 10 and 19). One, of any other operator."""
    if call.name.startswith("grid_sampler"):  # whose coordinates are multiplied by a number of pixels
        return int(max(call.args[0].shape[2:])) ** 2
    if call.is_transform:  # in each pass a product, its sum, a twiddle factor, an addition (Higham, chapter 24)
        size = math.prod(call.args[0].shape[dim] for dim in call.args[1])
        return 4 * math.ceil(math.log2(max(2, size)))
    if call.name in FUSED:  # an exponential or two, two products, and a sum of theirs that may cancel
        return 4
    if factorises(call):
        return int(max(value.shape[-1] for value in tensors.flat(call.args) if value.dim()))
    return 1


def factorises(call: Call) -> bool:
    return (call.name.lstrip("_").startswith("linalg_") and call.name not in PLAIN) or call.name in FACTORISED


def scaled(call: Call, value: Any, unit: float) -> Any:
    """Rows of a factor, each off by a factor of its own: as far as computed factors are from orthogonal ones."""
    if not value.dim() or not value.numel() or not factorises(call):
        return value
    return value * (1 + call.draws.deviates(value.narrow(-1, 0, 1)).mul_(unit / THIRD))
