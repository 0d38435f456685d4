"""Intervals of pass rates and medians: numbers in, numbers out. Times are compared by `harness.stats.effects`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy import stats


@lru_cache(maxsize=4096)
def pass_interval(passed: int, trials: int, confidence: float) -> tuple[float, float]:
    """Clopper-Pearson interval of a share (exact; Clopper and Pearson 1934)."""
    interval = stats.binomtest(passed, trials).proportion_ci(confidence, method="exact")
    return float(interval.low), float(interval.high)


@lru_cache(maxsize=256)
def _median_rank(count: int, confidence: float) -> int:
    """k for the interval from the k-th smallest to the k-th largest value; 0 where none is wide enough."""
    below = stats.binom.cdf(np.arange(count), count, 0.5)
    return int(np.searchsorted(below, (1 - confidence) / 2, side="right"))


def median_interval(values: Sequence[float], confidence: float) -> tuple[float, float] | None:
    """Interval of the median from order statistics, exact for any distribution (David and Nagaraja, "Order
    Statistics", section 7.1): None where too few values support it, at 95% fewer than six."""
    rank = _median_rank(len(values), confidence)
    if not rank:
        return None
    ordered = sorted(values)
    return ordered[rank - 1], ordered[-rank]
