"""What is called on a page, what is not, and what more launches would tell."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from harness.stats import decide, effects
from harness.stats.decide import DecisionRule
from tests.unit.test_effects import simulate


def verdicts(estimates: list[effects.Estimate], min_effect: float = 0.01, looks: int = 1) -> list[str]:
    q_values = decide.adjust([each.p_value for each in estimates], looks)
    return [decide.decide(each, q, min_effect, 0.05) for each, q in zip(estimates, q_values, strict=True)]


def page(effect: float, spread: float, launches: int, rows: int, seed: int) -> list[effects.Estimate]:
    """One row that moved, the first, among those that did not."""
    generator = np.random.default_rng(seed)
    differences = generator.normal(0, spread * math.sqrt(2), (rows, launches))
    differences[0] += math.log1p(effect)
    return effects.estimates(list(differences), 0.95)


def rule(rows: int = 24, looks: int = 1) -> DecisionRule:
    return DecisionRule(confidence=0.95, rate=0.05, rows=rows, looks=looks)


def test_faster_is_found_as_slower_is() -> None:
    assert verdicts(page(-0.05, 0.009, 16, 24, 1))[0] == "faster"


def test_moved_by_about_the_threshold_is_an_answer_of_its_own() -> None:
    estimate = effects.Estimate(blocks=40, ratio=1.011, low=1.007, high=1.015, p_value=1e-6, error=0.002, freedom=30.0)
    assert decide.decide(estimate, 1e-4, 0.01, 0.05) == "slightly slower"
    assert decide.decide(estimate, 0.2, 0.01, 0.05) == "undecided"
    assert decide.decide(estimate, 1e-4, 0.02, 0.05) == "same", "it moved, by less than what counts"
    assert decide.decide(estimate, 1e-4, 0.005, 0.05) == "slower"
    down = dataclasses.replace(estimate, ratio=1 / 1.011, low=1 / 1.015, high=1 / 1.007)
    assert decide.decide(down, 1e-4, 0.01, 0.05) == "slightly faster"


def test_without_an_interval_or_a_test_nothing_is_decided() -> None:
    assert decide.decide(effects.Estimate(blocks=1, ratio=3.0), None, 0.01, 0.05) == "undecided"
    assert decide.smallest_effect(effects.Estimate(blocks=1, ratio=3.0), rule(), 0.01) is None


def test_false_discovery_rates_leave_out_rows_without_a_test_and_count_looks() -> None:
    assert decide.adjust([0.01, None, 0.04]) == [pytest.approx(0.02), None, pytest.approx(0.04)]
    assert decide.adjust([0.01, None, 0.04], 4) == [pytest.approx(0.08), None, pytest.approx(0.16)]
    assert decide.adjust([]) == []


def test_the_smallest_effect_is_found_about_four_times_in_five() -> None:
    sizes = [decide.smallest_effect(each, rule(), 0.01) for each in page(0, 0.009, 10, 24, 3)]
    typical = float(np.median([size for size in sizes if size is not None]))
    assert 0.02 < typical < 0.04
    found = [verdicts(page(typical, 0.009, 10, 24, seed))[0] for seed in range(200)]
    assert 140 <= found.count("slower") <= 190


def test_more_rows_and_more_looks_raise_the_smallest_effect() -> None:
    estimate = simulate(0.0, 0.009, 10, 1)[0]
    one, rows, looks = (decide.smallest_effect(estimate, each, 0.01) for each in (rule(1), rule(1000), rule(1000, 4)))
    assert one is not None and rows is not None and looks is not None and one < rows < looks


def test_the_launches_that_would_see_an_effect_see_it_and_fewer_do_not() -> None:
    estimate = page(0.0, 0.03, 5, 24, 1)[0]
    assert (decide.smallest_effect(estimate, rule(), 0.01) or 0) > 0.05
    count = decide.launches_to_see(estimate, rule(), 0.01, 0.05)
    assert count is not None and count > 5
    just, fewer = (decide.with_blocks(estimate, blocks, 0.95) for blocks in (count, count - 1))
    assert (decide.smallest_effect(just, rule(), 0.01) or 1) <= 0.05
    assert (decide.smallest_effect(fewer, rule(), 0.01) or 0) > 0.05
    assert decide.launches_to_see(estimate, rule(), 0.01, 0.01) is None, "what does not count is never called"


def test_advice_is_always_more_launches_than_there_were() -> None:
    for seed in range(30):
        for estimate, verdict in zip(found := page(0.012, 0.012, 10, 24, seed), verdicts(found), strict=True):
            needed = decide.launches_to_decide(estimate, rule(), 0.01)
            assert verdict != "undecided" or (needed is not None and needed > 10)


def test_a_run_goes_on_only_for_what_more_launches_could_decide() -> None:
    close = effects.Estimate(blocks=10, ratio=1.004, low=0.99, high=1.018, p_value=0.5, error=0.006, freedom=9.0)
    hopeless = dataclasses.replace(close, low=0.95, high=1.06, error=0.024)
    moving = dataclasses.replace(hopeless, ratio=1.06, low=1.005, high=1.118)
    assert decide.goes_on(close, "undecided", rule(), 0.01, 40)
    assert not decide.goes_on(close, "same", rule(), 0.01, 40)
    assert not decide.goes_on(close, "undecided", rule(), 0.01, 10), "there were as many as there may be"
    assert not decide.goes_on(hopeless, "undecided", rule(), 0.01, 40)
    assert decide.goes_on(moving, "undecided", rule(), 0.01, 40)
    assert decide.goes_on(effects.Estimate(blocks=1, ratio=1.0), "undecided", rule(), 0.01, 40)


def test_looks_grow_from_the_planned_launches_to_the_most() -> None:
    assert decide.look_counts(10, 40) == (10, 16, 26, 40)
    assert decide.look_counts(10, 10) == (10,) and decide.look_counts(10, 11) == (10, 11)
    assert decide.look_counts(1, 4) == (1, 2, 4)
