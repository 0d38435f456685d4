"""Statistics of launch medians and pass rates: numbers in, numbers out.

One launch's median is one replicate; samples inside a launch share its luck and are never pooled.

Ratio: the Hodges-Lehmann two-sample shift of log medians (Hodges and Lehmann 1963; Hollander and Wolfe,
"Nonparametric Statistical Methods", section 4.3), that is the median of all pairwise log ratios. Its interval is the
distribution-free one from the same pairwise ratios, cut at the exact quantile of the Mann-Whitney statistic, so it
holds its confidence for any launch distribution and is absent where too few launches can support it.
Test: Mann-Whitney, exact (`method="auto"` and sampled permutations have a floor near 2e-4, which a false-discovery
rate over hundreds of rows can never pass); with ties, the exact permutation distribution of the rank sum.
False discoveries: Benjamini-Hochberg (1995) over every row of the report. Rows of one launch are positively
dependent, under which the procedure still controls the rate (Benjamini and Yekutieli 2001).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats

POWER = 0.8
# Of rank tests against the t test on normal data: how many more launches they need.
RANK_EFFICIENCY = 3 / math.pi
# The exact distribution costs the product of both counts; far above this the normal approximation is as good.
EXACT_LIMIT = 60
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Ratio of this environment to the baseline. `low` and `high` are None where no interval of the wanted
    confidence exists for this count; `spread` is the pooled standard deviation of log medians."""

    baseline_launches: int
    launches: int
    ratio: float
    low: float | None
    high: float | None
    p_value: float | None
    lowest_p: float
    spread: float | None


@lru_cache(maxsize=4096)
def pass_interval(passed: int, trials: int, confidence: float) -> tuple[float, float]:
    """Clopper-Pearson interval of a share (exact; Clopper and Pearson 1934)."""
    interval = stats.binomtest(passed, trials).proportion_ci(confidence, method="exact")
    return float(interval.low), float(interval.high)


@lru_cache(maxsize=256)
def _rank_sum_distribution(doubled_ranks: tuple[int, ...], count: int) -> Floats:
    """P(sum of `count` of the ranks = s), by index s, when all choices are equally likely. Ranks are doubled so that
    midranks of ties stay whole."""
    total = sum(doubled_ranks)
    ways = np.zeros((count + 1, total + 1))
    ways[0, 0] = 1.0
    for rank in doubled_ranks:
        for chosen in range(count, 0, -1):
            ways[chosen, rank:] += ways[chosen - 1, : total + 1 - rank]
    return np.asarray(ways[count] / ways[count].sum(), dtype=np.float64)


@lru_cache(maxsize=256)
def _interval_rank(baseline_launches: int, launches: int, confidence: float) -> int:
    """k for the interval from the k-th smallest to the k-th largest pairwise ratio; 0 where none is wide enough."""
    if max(baseline_launches, launches) > EXACT_LIMIT:
        mean = baseline_launches * launches / 2
        deviation = math.sqrt(mean * (baseline_launches + launches + 1) / 6)
        return max(0, math.floor(mean - float(stats.norm.ppf(0.5 + confidence / 2)) * deviation))
    ranks = tuple(2 * rank for rank in range(1, baseline_launches + launches + 1))
    cumulative = np.cumsum(_rank_sum_distribution(ranks, launches)[launches * (launches + 1) :: 2])
    return int(np.searchsorted(cumulative, (1 - confidence) / 2, side="right"))


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


def lowest_p(baseline_launches: int, launches: int) -> float:
    """The smallest p that the exact two-sided test can give: complete separation."""
    return min(1.0, 2 / math.comb(baseline_launches + launches, launches))


def _tied_p(this: Floats, base: Floats) -> float:
    doubled = np.rint(2 * stats.rankdata(np.concatenate([this, base]))).astype(int)
    distribution = _rank_sum_distribution(tuple(sorted(int(rank) for rank in doubled)), len(this))
    observed = int(doubled[: len(this)].sum())
    lower, upper = distribution[: observed + 1].sum(), distribution[observed:].sum()
    return float(min(1.0, 2 * min(lower, upper)))


def _p_values(this: Floats, base: Floats) -> list[float | None]:
    """Per row of two tables of launches."""
    if min(this.shape[1], base.shape[1]) < 2:
        return [None] * len(this)
    exact = max(this.shape[1], base.shape[1]) <= EXACT_LIMIT
    together = np.sort(np.concatenate([this, base], axis=1), axis=1)
    tied = (np.diff(together, axis=1) == 0).any(axis=1)
    values = stats.mannwhitneyu(this, base, axis=1, method="exact" if exact else "asymptotic").pvalue
    return [
        _tied_p(this[row], base[row]) if exact and tied[row] else min(1.0, float(value))
        for row, value in enumerate(np.atleast_1d(values))
    ]


def compare_launches(pairs: Sequence[tuple[Sequence[float], Sequence[float]]], confidence: float) -> list[Estimate]:
    """Estimates for (baseline medians, this environment's medians), each of at least one positive time."""
    shapes: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index, (base, this) in enumerate(pairs):
        shapes[len(base), len(this)].append(index)
    estimates: dict[int, Estimate] = {}
    for (base_count, count), rows in shapes.items():
        before: Floats = np.log(np.array([pairs[row][0] for row in rows], dtype=np.float64))
        after: Floats = np.log(np.array([pairs[row][1] for row in rows], dtype=np.float64))
        shifts = np.sort((after[:, :, None] - before[:, None, :]).reshape(len(rows), -1), axis=1)
        rank = _interval_rank(base_count, count, confidence)
        centre = np.median(shifts, axis=1)
        p_values = _p_values(after, before)
        freedom = base_count + count - 2
        squares = ((after - after.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
        squares += ((before - before.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
        for position, row in enumerate(rows):
            estimates[row] = Estimate(
                baseline_launches=base_count,
                launches=count,
                ratio=math.exp(centre[position]),
                low=math.exp(shifts[position, rank - 1]) if rank else None,
                high=math.exp(shifts[position, -rank]) if rank else None,
                p_value=p_values[position],
                lowest_p=lowest_p(base_count, count),
                spread=math.sqrt(squares[position] / freedom) if freedom > 0 else None,
            )
    return [estimates[index] for index in range(len(pairs))]


def adjust(p_values: Sequence[float | None]) -> list[float | None]:
    """Benjamini-Hochberg q values over the rows that have a p."""
    known = [value for value in p_values if value is not None]
    adjusted: Iterator[float] = iter(stats.false_discovery_control(known, method="bh") if known else [])
    return [None if value is None else float(next(adjusted)) for value in p_values]


@lru_cache(maxsize=4096)
def _quantiles(alpha: float, freedom: int) -> float:
    return float(stats.t.ppf(1 - alpha / 2, freedom) + stats.t.ppf(POWER, freedom))


def smallest_effect(
    estimate: Estimate, rows: int, min_effect: float, confidence: float, false_discovery_rate: float
) -> float | None:
    """The smallest slow-down (a share) called with 80% power, were it the only one among `rows`:

        (1 + min_effect) * exp((t[1 - a/2] + t[0.8]) * spread * sqrt((1/m + 1/n) * pi/3)) - 1

    with a the stricter of the interval's and the lone row's level, rate / rows. None where no effect, however large,
    could be called with this many launches.
    """
    alpha = min(1 - confidence, false_discovery_rate / max(rows, 1))
    if estimate.spread is None or estimate.low is None or estimate.lowest_p > alpha:
        return None
    size = 1 / estimate.launches + 1 / estimate.baseline_launches
    freedom = estimate.launches + estimate.baseline_launches - 2
    reach = _quantiles(alpha, freedom) * estimate.spread * math.sqrt(size / RANK_EFFICIENCY)
    return (1 + min_effect) * math.exp(min(reach, 50.0)) - 1


def launches_needed(estimate: Estimate, rows: int, min_effect: float, false_discovery_rate: float) -> int:
    """Launches of each environment after which an interval is about `min_effect` wide, and a lone change can pass the
    false-discovery rate."""
    count = 4
    while lowest_p(count, count) > false_discovery_rate / max(rows, 1):
        count += 1
    if estimate.spread:
        width = 2 * 1.96 * estimate.spread * math.sqrt(2 / RANK_EFFICIENCY)
        count = max(count, math.ceil((width / math.log1p(min_effect)) ** 2))
    return count


def decide(estimate: Estimate, q_value: float | None, min_effect: float, false_discovery_rate: float) -> str:
    """`slower` or `faster`: the whole interval lies beyond the minimum effect, and the row survives the
    false-discovery rate. `same`: the whole interval lies within it. `undecided` otherwise."""
    if estimate.low is None or estimate.high is None or q_value is None:
        return "undecided"
    slow, fast = 1 + min_effect, 1 / (1 + min_effect)
    if q_value <= false_discovery_rate and estimate.low > slow:
        return "slower"
    if q_value <= false_discovery_rate and estimate.high < fast:
        return "faster"
    if fast <= estimate.low and estimate.high <= slow:
        return "same"
    return "undecided"
