"""Rates and errors of one target in two versions: what is called moved, how often by chance, and on real records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.schema.records import Agreement, RecipeResult, TargetResult, ValidationRecord
from harness.schema.storage import load_record
from harness.stats.outputs import errors_moved
from harness.worker import protocol
from reports import model
from reports.compare.correctness import OutputsSeen, compare_errors, fisher_p, judge, pass_interval
from reports.model import Bits, CorrectnessSide, Rate
from tests.unit.committed import committed

LEVEL = 0.05
NAMES = {"e": "PyTorch 2.5.0"}
Side = list[tuple[RecipeResult, TargetResult]]


def errors(
    means: Sequence[float],
    units: Sequence[float],
    recipe: str = "independent",
    elements: int = 4096,
    differ: int = 0,
    old: bool = False,
) -> Side:
    """One recipe of a validation; `old`: recorded before each trial's mean was."""
    trials = len(means)
    agreement = Agreement(
        against=protocol.TRUTH,
        passed={"rounding": trials},
        max_abs=max(means) * 9,
        mean_abs=sum(means) / trials,
        max_units=max(units),
        units_per_trial=list(units),
        mean_abs_per_trial=[] if old else list(means),
        nonfinite_trials=0,
        elements=elements * trials,
        worst=None,
    )
    result = TargetResult(status="ok", target="kernel", against=[agreement], repeats_differ=differ)
    shared = [f"input {trial}" for trial in range(trials)]
    return [
        (
            RecipeResult(
                recipe=recipe, trials=trials, input_sha256=shared, truth_sha256=[], rounding_cost=[], targets=[result]
            ),
            result,
        )
    ]


def moved(base: Side, this: Side) -> tuple[str, float]:
    found, p = errors_moved(base, this)
    if found is None or (p is not None and p > LEVEL):
        return "pass", 1.0
    return ("less exact" if found.ratio > 1 else "more exact"), found.ratio


def test_equal_errors_are_not_even_tested() -> None:
    same = errors([1e-4] * 20, [1.0] * 20)
    assert errors_moved(same, same) == (None, None)


@pytest.mark.parametrize("old", [False, True])
def test_a_mean_that_grew_on_every_trial_is_less_exact(old: bool) -> None:
    base, this = errors([1e-4] * 20, [1.0] * 20, old=old), errors([1.4e-4] * 20, [1.3] * 20, old=old)
    assert moved(base, this) == ("less exact", pytest.approx(1.4))
    assert moved(this, base) == ("more exact", pytest.approx(1 / 1.4))
    assert moved(base, errors([1.1e-4] * 20, [1.2] * 20, old=old))[0] == "pass"  # surely, and too little


def test_a_largest_error_of_one_to_four_units_is_less_exact_though_the_mean_stays() -> None:
    """What -ffast-math does to a half type: the mean is the rounding of the output."""
    base = errors([1e-4] * 10, [1.0, 1.02, 0.98, 1.01, 1.0] * 2)
    this = errors([1.01e-4] * 10, [3.9, 3.6, 4.1, 3.7, 3.9] * 2)
    assert moved(base, this) == ("less exact", pytest.approx(3.82, rel=0.05))
    fluke = errors([1.01e-4] * 10, [1.0] * 9 + [3.9])
    assert moved(base, fluke)[0] == "pass"


def test_few_trials_are_facts_only_where_bits_repeat_and_means_are_over_many_elements() -> None:
    base, this = errors([1e-4] * 2, [1.0] * 2), errors([2e-4] * 2, [1.9] * 2)
    assert moved(base, this)[0] == "less exact"
    assert moved(base, errors([2e-4] * 2, [1.9] * 2, differ=1))[0] == "pass"
    assert moved(errors([1e-4] * 2, [1.0] * 2, elements=8), errors([2e-4] * 2, [1.9] * 2, elements=8))[0] == "pass"
    assert moved(errors([1e-4, 1e-4], [1, 1]), errors([2e-4, 1.1e-4], [1.9, 1.1]))[0] == "pass"


def test_other_inputs_are_not_compared() -> None:
    base, this = errors([1e-4] * 20, [1.0] * 20), errors([2e-4] * 20, [2.0] * 20)
    other = [(replace(this[0][0], input_sha256=["other"] * 20), this[0][1])]
    assert errors_moved(base, other) == (None, None)


def test_two_equally_exact_kernels_are_rarely_called_apart() -> None:
    """Each trial's errors are drawn alike on both sides: of small outputs, and not bit-repeatable."""
    generator = np.random.default_rng(1)
    called = 0
    for _ in range(400):
        sides = [
            errors(generator.lognormal(-9, 0.4, 20).tolist(), generator.lognormal(0, 0.4, 20).tolist(), elements=8)
            for _ in range(2)
        ]
        called += moved(*sides)[0] != "pass"
    assert called <= 0.05 * 400


def side(failed: int, trials: int, differ: int) -> CorrectnessSide:
    low, high = pass_interval(trials - failed, trials, 0.95)
    rate = Rate(passed=trials - failed, trials=trials, low=low, high=high, rule="rounding", against=protocol.TRUTH)
    return CorrectnessSide(
        environment="e", status="wrong" if failed else "ok", rate=rate, repeats_differ=differ, decides="rounding"
    )


def judged(base: CorrectnessSide, this: CorrectnessSide) -> str:
    p = fisher_p(base, this)
    bits = Bits(compared=0, identical=0, inputs_differ=0)
    return judge(OutputsSeen(base=base, this=this, bits=bits, p_value=p), p, LEVEL, NAMES).verdict


def test_failures_by_chance_on_both_sides_are_rarely_a_regression() -> None:
    """0.5% of trials fail on both sides, by chance: what fails in one run passes in the other, with other bits."""
    generator = np.random.default_rng(7)
    found = []
    for _ in range(2000):
        failed = [int(each) for each in generator.binomial(100, 0.005, 2)]
        found.append(judged(*(side(each, 100, each) for each in failed)))
    assert found.count(model.REGRESSED) <= 0.05 * 2000 and found.count(model.FIXED) <= 0.05 * 2000
    assert found.count(model.PASS) > 0.3 * 2000 and found.count(model.UNDECIDED) > 0.3 * 2000


def test_a_rate_that_fell_far_is_a_regression_also_of_what_does_not_repeat() -> None:
    assert judged(side(0, 100, 30), side(20, 100, 40)) == model.REGRESSED
    assert judged(side(20, 100, 40), side(0, 100, 0)) == model.FIXED
    assert judged(side(0, 100, 0), side(1, 100, 0)) == model.REGRESSED  # both repeat: a fact
    assert judged(side(0, 100, 0), side(1, 100, 1)) == model.UNDECIDED


def test_what_is_wrong_besides_the_rate_is_no_rate() -> None:
    this = CorrectnessSide(**{**vars(side(0, 100, 3)), "status": "wrong", "unwritten_trials": 3})
    assert judged(side(0, 100, 0), this) == model.REGRESSED


def recorded(folder: Path) -> dict[tuple[str, str, str], dict[str, ValidationRecord]]:
    found: dict[tuple[str, str, str], dict[str, ValidationRecord]] = {}
    for path in (folder / "validations").rglob("*.json"):
        record = load_record(path, ValidationRecord)
        found.setdefault((record.kernel, record.workload, record.device), {})[record.environment] = record
    return found


def test_on_the_committed_records_the_mended_math_alone_is_more_exact(tmp_path: Path) -> None:
    """2.1.0's half math rounds its scores; 2.5.0's does not. Kernels did not move, and neither did flash, whose largest
    error fell by up to 1.4 times where its mean stayed."""
    called = {}
    [folder] = committed(tmp_path, "cpu-2.1.0-2.5.0")
    for key, sides in recorded(folder).items():
        base, this = (sides[name] for name in sorted(sides))
        for target in {result.target for recipe in base.recipes for result in recipe.targets}:
            found, p = compare_errors(base, this, target)
            if found is not None and (p is None or p <= LEVEL):
                called[key[1], target] = found.ratio
    assert {target for _, target in called} == {"math"} and all(ratio < 0.6 for ratio in called.values())
    assert all(math.isfinite(ratio) for ratio in called.values())
