"""Where a series of times steps to another level, and stays there. Pure.

Segments of least squares under a penalty for each (Killick, Fearnhead and Eckley, "Optimal Detection of Changepoints
With a Linear Computational Cost", JASA 2012), by the library ruptures. The noise is estimated from differences of
neighbours, which a step moves but once. A run that stands alone outside of its neighbours is no step: what exceeds
their median by more than two standard deviations counts as two.

The penalty is from simulations with normal noise, of 8 to 150 runs: about one series in 1,000 or fewer has a step
that is none (`benchmarks/history.py`). Short series pay more, since the noise itself is estimated from few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

LEAST_RUNS = 8
SHORTEST = 2  # runs of a level
PENALTY = (28.0, 150.0, 4000.0)  # in variances: constant, over the number of runs, and over its square
CLIPPED, NEIGHBOURS = 2.0, 2  # standard deviations from the median of so many on either side
NORMAL = 1.4826  # a normal distribution's standard deviation, in median absolute deviations
FINEST = 1e-4  # of the noise: clocks and medians repeat no better

Floats = npt.NDArray[np.float64]


class Step(NamedTuple):
    """`at`: the index of the first run of the new level; `ratio`: the new level over the old, above 1 is slower."""

    at: int
    ratio: float


def find_steps(times_us: Sequence[float]) -> list[Step]:
    """Steps of positive times in the order of their runs; none of fewer than LEAST_RUNS."""
    if len(times_us) < LEAST_RUNS:
        return []
    import ruptures

    values = np.log(np.asarray(times_us, float))
    noise = max(FINEST, NORMAL * float(np.median(np.abs(np.diff(values)))) / math.sqrt(2))
    clipped = _clipped(values, noise) / noise
    search = ruptures.KernelCPD(kernel="linear", min_size=SHORTEST).fit(clipped.reshape(-1, 1))
    penalty = sum(part / len(values) ** power for power, part in enumerate(PENALTY))
    ends = [0, *search.predict(pen=penalty)]
    levels = [median(values[start:end]) for start, end in pairwise(ends)]
    return [Step(at, math.exp(after - before)) for at, (before, after) in zip(ends[1:], pairwise(levels), strict=False)]


def _clipped(values: Floats, noise: float) -> Floats:
    around = np.lib.stride_tricks.sliding_window_view(np.pad(values, NEIGHBOURS, mode="edge"), 2 * NEIGHBOURS + 1)
    middle = np.median(around, axis=1)
    found: Floats = middle + np.clip(values - middle, -CLIPPED * noise, CLIPPED * noise)
    return found
