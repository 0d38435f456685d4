"""Whether what was observed of one target differs between two versions: rates of trials that pass, and errors of trials
that all pass. Numbers in, numbers out; the one place that compares either.

A pass rate is compared as a rate: Fisher's exact test. Errors are compared trial by trial, since both versions had the
same input bytes: the log ratio of a trial's mean error, which says what is typical, and that of its largest. What is
typical counts from a quarter more on. The largest of many elements is mostly luck: on the committed records it moves by
up to 1.6 times where the mean moves by 1%, so that it counts from twice on, in the median trial. Either is tested by
Wilcoxon's signed-rank test (1945), times the number of tests of the row (Bonferroni); the false-discovery rate over
rows is the caller's. Where both versions repeat their bits, and a trial's mean is over many elements, few trials need
no test: a mean that is off by as much on every one of them is no luck.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

import numpy as np
from scipy import stats

from harness.schema.records import Agreement, RecipeResult, TargetResult
from harness.worker import protocol

TYPICAL, LARGEST = 1.25, 2.0  # ratios of errors from which on they count
FEWEST_PAIRS = 6  # at which Wilcoxon's test can fall below 0.05
FACTS_FROM, FACT_ELEMENTS = 2, 1000  # trials, and elements of each, for which a mean error is no luck
FARTHEST = math.log(1e6)  # of an error that is zero on one side


@lru_cache(maxsize=4096)
def rates_differ(passed: int, trials: int, other_passed: int, other_trials: int) -> float:
    """Two-sided p of Fisher's exact test that two pass rates differ."""
    table = [[passed, trials - passed], [other_passed, other_trials - other_passed]]
    return float(stats.fisher_exact(np.array(table)).pvalue)


@dataclass(frozen=True, kw_only=True)
class Errors:
    """How errors on one recipe of inputs moved. `ratio`: this version's over the baseline's, above 1 is less exact;
    `what`: of the mean, or of the largest, with its value in both."""

    recipe: str
    what: str
    ratio: float
    base: float
    this: float
    pairs: int
    p_value: float | None  # None: no test is needed

    @property
    def counts(self) -> bool:
        return abs(math.log(self.ratio)) >= math.log(TYPICAL if self.what == "mean" else LARGEST)


def errors_moved(
    base: Iterable[tuple[RecipeResult, TargetResult]], this: Iterable[tuple[RecipeResult, TargetResult]]
) -> tuple[Errors | None, float | None]:
    """(how one target's errors against the truth moved most, where they moved so far that it counts, p of the row).

    p is None where nothing was tested, as where the outputs are the same, or where no test is needed."""
    others = {recipe.recipe: (recipe, result) for recipe, result in this}
    errors: list[Errors] = []
    for recipe, result in base:
        if recipe.recipe in others:
            errors += _of_recipe((recipe, result), others[recipe.recipe])
    tests = sum(error.p_value is not None for error in errors)
    counting = [error for error in errors if error.counts]
    facts = [error for error in counting if error.p_value is None]
    if facts:
        return max(facts, key=lambda error: abs(math.log(error.ratio))), None
    if not counting:
        return None, 1.0 if tests else None
    lead = min(counting, key=lambda error: (error.p_value or 0.0, -abs(math.log(error.ratio))))
    return lead, min(1.0, tests * (lead.p_value or 0.0))


def _of_recipe(base: tuple[RecipeResult, TargetResult], this: tuple[RecipeResult, TargetResult]) -> list[Errors]:
    one, two = (_against_truth(result) for _, result in (base, this))
    if one is None or two is None:
        return []
    same = [left == right for left, right in zip(base[0].input_sha256, this[0].input_sha256, strict=False)]
    alike = base[1].precision == this[1].precision  # else their units are not the same
    worst = _ratios(one.units_per_trial, two.units_per_trial, same) if alike else []
    typical = _ratios(one.mean_abs_per_trial, two.mean_abs_per_trial, same)
    errors = []
    means = one.mean_abs, two.mean_abs
    if means[0] is not None and means[1] is not None and all(same):
        # Records of before there was a mean for each trial have one for all of them; their trials' largest stand in.
        overall = _log_ratio(means[0], means[1])
        centre = median(typical) if typical else overall
        pairs = typical or worst
        if any(pairs) and centre:
            agree = all(ratio * centre > 0 for ratio in pairs)
            far = agree and all(abs(ratio) >= math.log(TYPICAL) for ratio in typical)
            repeat = not (base[1].repeats_differ or this[1].repeats_differ)
            many = one.elements is None or one.elements >= FACT_ELEMENTS * base[0].trials
            fact = repeat and far and len(pairs) >= FACTS_FROM and many
            p = None if fact else _signed_rank(pairs) if median(pairs) * centre > 0 else 1.0
            errors.append(_errors(base[0].recipe, "mean", centre, means[0], means[1], len(pairs), p))
    if any(worst):
        largest = [median(value for value in each.units_per_trial if value is not None) for each in (one, two)]
        p = _signed_rank(worst)
        errors.append(_errors(base[0].recipe, "largest", median(worst), largest[0], largest[1], len(worst), p))
    return errors


def _errors(recipe: str, what: str, log_ratio: float, base: float, this: float, pairs: int, p: float | None) -> Errors:
    return Errors(recipe=recipe, what=what, ratio=math.exp(log_ratio), base=base, this=this, pairs=pairs, p_value=p)


def _against_truth(result: TargetResult) -> Agreement | None:
    return next((agreement for agreement in result.against if agreement.against == protocol.TRUTH), None)


def _log_ratio(base: float, this: float) -> float:
    if base == this:
        return 0.0
    if not base > 0 or not this > 0:
        return FARTHEST if this > base else -FARTHEST
    return math.log(this / base)


def _ratios(base: Sequence[float | None], this: Sequence[float | None], same: Sequence[bool]) -> list[float]:
    """Log ratios of the trials that have a value on both sides, for the same input bytes."""
    return [
        _log_ratio(before, now)
        for before, now, alike in zip(base, this, same, strict=False)
        if alike and before is not None and now is not None
    ]


def _signed_rank(ratios: Sequence[float]) -> float:
    moved = [ratio for ratio in ratios if ratio]
    if len(moved) < FEWEST_PAIRS:
        return 1.0
    return float(stats.wilcoxon(np.array(moved)).pvalue)
