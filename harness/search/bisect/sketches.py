"""Sketches of float64 results: a few numbers of each, by which versions of different runs are compared. Pure.

Versions that compute different things may each be right by their own float64 result. Results themselves are large and
lie in the runs. Of two results that are equal to within rounding, a projection on one random direction is equal, too.
Of two that differ in as little as one element, it is not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from harness.run.pairwise import Arrays, output_of_truth
from harness.schema.bisection_records import TruthSketch

SEED = 20241128  # of the directions
RESOLUTION = 2.0**-34  # of the largest magnitude: of projections, which average what rounding does to elements


def sketch_truths(arrays: Arrays) -> dict[str, TruthSketch]:
    """Return a sketch of each stored float64 result, by its name: input distribution, trial and output."""
    return {name: sketch(array) for name, array in arrays.items() if output_of_truth(name.split("/", 2)[2]) is not None}


def sketch(array: np.ndarray) -> TruthSketch:
    """Sketch a float64 array: its shape, where it has NaN and infinities, and the projection of its finite values on
    a random direction, over the square root of their number."""
    kinds = np.where(np.isnan(array), 1, np.where(np.isposinf(array), 2, np.where(np.isneginf(array), 3, 0)))
    values = np.where(kinds == 0, array, 0.0).reshape(-1)
    direction = np.random.Generator(np.random.PCG64(SEED)).standard_normal(values.size)
    return TruthSketch(
        shape=list(array.shape),
        nonfinite_sha256=hashlib.sha256(kinds.astype(np.uint8).tobytes()).hexdigest(),
        projection=float(values @ direction) / max(1, values.size) ** 0.5,
        largest=float(np.abs(values).max(initial=0.0)),
    )


def sketches_differ(sketches: Mapping[str, TruthSketch], others: Mapping[str, TruthSketch]) -> bool:
    """Return whether some float64 result that both versions have is not the same thing in both."""
    return any(_differ(sketches[name], others[name]) for name in sketches.keys() & others.keys())


def _differ(one: TruthSketch, other: TruthSketch) -> bool:
    if (one.shape, one.nonfinite_sha256) != (other.shape, other.nonfinite_sha256):
        return True
    return abs(one.projection - other.projection) > RESOLUTION * max(one.largest, other.largest)
