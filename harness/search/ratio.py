"""The ratio of two versions' or settings' times, with a distribution-free interval.

The interval is that of Hodges and Lehmann (1963): pairwise log ratios, cut at the exact quantile of the Mann-Whitney
statistic. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import median

import numpy as np


def ratio_of(
    base_us: Sequence[float], this_us: Sequence[float], level: float
) -> tuple[float, float | None, float | None]:
    """(ratio of times, low, high) from launch medians of the same blocks; no interval where too few can support it."""
    shifts = sorted(math.log(this / base) for this in this_us for base in base_us)
    cut = _cut(len(base_us), len(this_us), level)
    low, high = (math.exp(shifts[cut - 1]), math.exp(shifts[-cut])) if cut else (None, None)
    return math.exp(median(shifts)), low, high


@lru_cache(maxsize=64)
def _cut(base: int, this: int, level: float) -> int:
    """k for the interval from the k-th smallest to the k-th largest pairwise ratio; 0 where none is wide enough."""
    # In how many orders of both samples the first is the larger in so many pairs (Mann and Whitney 1947).
    ways = np.zeros((base + 1, this + 1, base * this + 1))
    ways[0, :, 0] = ways[:, 0, 0] = 1
    for i in range(1, base + 1):
        for j in range(1, this + 1):
            ways[i, j, j:] += ways[i - 1, j, : base * this + 1 - j]
            ways[i, j] += ways[i, j - 1]
    cumulative = np.cumsum(ways[base, this] / math.comb(base + this, this))
    return int(np.searchsorted(cumulative, level / 2, side="right"))
