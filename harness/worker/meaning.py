"""Whether two float64 results of one computation differ by more than float64's own rounding: then what was computed
is not the same thing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .protocol import DifferenceKind

if TYPE_CHECKING:
    from .dtypes import Array
    from .inputs import Shape

RESOLUTION = 2.0**-30  # of the largest finite value: far above rounding in float64, far below that of any other dtype
AMPLIFIED = 2.0**10  # how many float64 roundings, amplified as the computation amplifies those of its dtype, are none


class Float64Difference(NamedTuple):
    """`elements`: how many differ; `place`: of the one that differs most, with the two values, which are NaN where
    shapes differ."""

    kind: DifferenceKind
    elements: int
    place: Shape
    left: float
    right: float


def float64_difference(left: Array, right: Array, resolution: float = RESOLUTION) -> Float64Difference | None:
    """Compare two float64 arrays. None where they agree to within `resolution` of the largest finite value of either,
    and have NaN and infinities in the same places."""
    if left.shape != right.shape:
        return Float64Difference(DifferenceKind.SHAPE, max(left.size, right.size), (), np.nan, np.nan)
    both = np.isfinite(left) & np.isfinite(right)
    same = both | (np.isnan(left) & np.isnan(right)) | (left == right)
    if not same.all():
        first = np.unravel_index(int(np.argmin(same)), left.shape)
        return _at(DifferenceKind.NONFINITE, int(np.count_nonzero(~same)), first, left, right)
    with np.errstate(invalid="ignore"):
        apart = np.where(both, np.abs(left - right), 0.0)
    largest = max((float(np.abs(array[both]).max(initial=0.0)) for array in (left, right)), default=0.0)
    beyond = apart > resolution * largest
    if not beyond.any():
        return None
    most = np.unravel_index(int(np.argmax(apart)), left.shape)
    return _at(DifferenceKind.VALUE, int(np.count_nonzero(beyond)), most, left, right)


def _at(
    kind: DifferenceKind, elements: int, index: tuple[np.intp, ...], left: Array, right: Array
) -> Float64Difference:
    place = tuple(int(each) for each in index)
    return Float64Difference(kind, elements, place, float(left[place]), float(right[place]))


def resolution_of(cost: float, unit_roundoff: float) -> float:
    """Return how far apart float64 results may be, as a share of the largest value. `cost`: the error that
    straightforward arithmetic makes in the dtype, relative to a row's largest value; `unit_roundoff`: the dtype's. A
    computation that amplifies the dtype's rounding amplifies float64's as much."""
    return max(RESOLUTION, AMPLIFIED * cost / unit_roundoff * 2.0**-53)
