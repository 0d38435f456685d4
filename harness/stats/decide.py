"""What a page's rows say together: which moved, whether more launches could tell, and what would have been seen. Pure.

False discoveries: Benjamini-Hochberg (1995) over every row of the page, each p times the number of looks (Bonferroni)
where a run may be prolonged. Rows of one launch are positively dependent, under which the procedure still controls the
rate (Benjamini and Yekutieli 2001). Where nothing moved, the rate is the chance of any wrong call on the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from scipy import stats

from harness.stats.effects import TRIMMED, Estimate, compare_launches

POWER = 0.8
GROWTH = 1.6  # launches at one look, over those at the one before
MOST_ADVISED = 100_000
SLOWER, FASTER, SAME, UNDECIDED = "slower", "faster", "same", "undecided"
# Moved for sure, and neither for sure beyond the smallest effect that counts nor within it.
SLIGHTLY_SLOWER, SLIGHTLY_FASTER = "slightly slower", "slightly faster"


def look_counts(planned: int, most: int) -> tuple[int, ...]:
    """Numbers of launches at which it is decided whether a run goes on; at the last one it ends."""
    counts = [planned]
    while counts[-1] < most:
        counts.append(min(most, math.ceil(counts[-1] * GROWTH)))
    return tuple(counts)


def adjust(p_values: Sequence[float | None], looks: int = 1) -> list[float | None]:
    """Benjamini-Hochberg q values over the rows that have a p, each of so many looks (Bonferroni)."""
    known = [min(1.0, looks * value) for value in p_values if value is not None]
    adjusted: Iterator[float] = iter(stats.false_discovery_control(known, method="bh") if known else [])
    return [None if value is None else float(next(adjusted)) for value in p_values]


def decide(estimate: Estimate, q_value: float | None, min_effect: float, rate: float) -> str:
    """A change is called where it survives the false-discovery rate, and its interval does not hold 1. It is slower or
    faster where the whole interval lies beyond the minimum effect, and only slightly so where it straddles it.
    `same`: the whole interval lies within the minimum effect."""
    if estimate.low is None or estimate.high is None or q_value is None:
        return UNDECIDED
    slow, fast = 1 + min_effect, 1 / (1 + min_effect)
    if fast <= estimate.low and estimate.high <= slow:
        return SAME
    if q_value <= rate and estimate.low > 1:
        return SLOWER if estimate.low > slow else SLIGHTLY_SLOWER
    if q_value <= rate and estimate.high < 1:
        return FASTER if estimate.high < fast else SLIGHTLY_FASTER
    return UNDECIDED


Samples = tuple[Sequence[float], Sequence[float]]  # the baseline's and this environment's, by block
Decided = tuple[Estimate, float | None, str]  # with its q value, and what is called


def decide_rows(
    pairs: Sequence[Samples], min_effects: Sequence[float], confidence: float, rate: float, looks: int = 1
) -> list[Decided]:
    """All rows of a page together, each by its own minimum effect."""
    found = compare_launches(pairs, confidence)
    q_values = adjust([estimate.p_value for estimate in found], looks)
    return [
        (estimate, q_value, decide(estimate, q_value, min_effect, rate))
        for estimate, q_value, min_effect in zip(found, q_values, min_effects, strict=True)
    ]


@dataclass(frozen=True, kw_only=True)
class DecisionRule:
    """What decides, of a page: its thresholds, how many rows it tests, and at how many looks."""

    confidence: float
    rate: float
    rows: int
    looks: int = 1

    def reach(self, freedom: float) -> float:
        """Standard errors from 1 at which a lone row is called."""
        return _quantile(1 - self.rate / max(self.rows, 1) / self.looks / 2, freedom)


@lru_cache(maxsize=65536)
def _quantile(level: float, freedom: float) -> float:
    return float(stats.t.ppf(level, freedom))


def with_blocks(estimate: Estimate, blocks: int, confidence: float) -> Estimate:
    """As it would be after so many blocks, if its ratio and how its launches spread stayed what they are."""
    if estimate.error is None or estimate.freedom is None or estimate.low is None or estimate.high is None:
        return estimate
    freedom = max(1.0, estimate.freedom + (blocks - estimate.blocks) * (1 - 2 * TRIMMED))
    shrink = math.sqrt(estimate.blocks / blocks)
    level = 0.5 + confidence / 2
    half = _half(estimate) * shrink * _quantile(level, freedom) / _quantile(level, estimate.freedom)
    return replace(
        estimate,
        blocks=blocks,
        low=estimate.ratio * math.exp(-half),
        high=estimate.ratio * math.exp(half),
        error=estimate.error * shrink,
        freedom=freedom,
    )


def _half(estimate: Estimate) -> float:
    assert estimate.low is not None and estimate.high is not None
    return math.log(estimate.high / estimate.low) / 2


def smallest_effect(estimate: Estimate, rule: DecisionRule, min_effect: float) -> float | None:
    """The smallest slow-down (a share) called with 80% power, were it the only one on the page: it must survive the
    correction, and its interval must clear the minimum effect. None where one block says nothing of the scatter."""
    if estimate.error is None or estimate.freedom is None:
        return None
    called = rule.reach(estimate.freedom) * estimate.error
    cleared = math.log1p(min_effect) + _half(estimate)
    return math.expm1(min(max(called, cleared) + _quantile(POWER, estimate.freedom) * estimate.error, 50.0))


def _fewest(few: int, enough: Callable[[int], bool]) -> int | None:
    """The smallest number of blocks above `few` that is enough, where more are, too."""
    many = few + 1
    while not enough(many):
        if many > MOST_ADVISED:
            return None
        few, many = many, 2 * many
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if enough(middle) else (middle, many)
    return many


def launches_to_see(estimate: Estimate, rule: DecisionRule, min_effect: float, effect: float) -> int | None:
    """Launches of each environment with which `effect` would be called with 80% power; None where none so far says how
    they spread, or no number would do."""
    if estimate.error is None or effect <= min_effect:
        return None

    def enough(blocks: int) -> bool:
        smallest = smallest_effect(with_blocks(estimate, blocks, rule.confidence), rule, min_effect)
        return smallest is not None and smallest <= effect

    return _fewest(1, enough)


def _moved(estimate: Estimate, rule: DecisionRule) -> bool:
    """Whether so large a ratio is called."""
    assert estimate.error is not None and estimate.freedom is not None
    return rule.reach(estimate.freedom) * estimate.error < abs(math.log(estimate.ratio))


def launches_to_decide(estimate: Estimate, rule: DecisionRule, min_effect: float) -> int | None:
    """Launches of each environment, more than it had, after which an undecided row would be decided if its ratio stayed
    where it is; None where one block says nothing of the scatter, or no number would do."""
    if estimate.error is None:
        return None
    room = math.log1p(min_effect) - abs(math.log(estimate.ratio))

    def enough(blocks: int) -> bool:
        then = with_blocks(estimate, blocks, rule.confidence)
        return _half(then) <= room or _moved(then, rule)

    return _fewest(estimate.blocks, enough)


def goes_on(estimate: Estimate, verdict: str, rule: DecisionRule, min_effect: float, most: int) -> bool:
    """Whether more launches, up to `most`, could decide an undecided row: make its interval narrow enough for `same`,
    were its ratio 1, or its ratio, as it stands, a change."""
    if verdict != UNDECIDED or estimate.blocks >= most:
        return False
    if estimate.error is None:
        return True
    then = with_blocks(estimate, most, rule.confidence)
    return _half(then) < math.log1p(min_effect) or _moved(then, rule)
