"""harness.stats.effects against simulated launches."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from harness.stats import effects

MEDIANS = st.lists(st.tuples(st.floats(1.0, 1e6), st.floats(1.0, 1e6)), min_size=1, max_size=12)


def simulate(effect: float, spread: float, launches: int, rows: int, seed: int = 1) -> list[effects.Estimate]:
    generator = np.random.default_rng(seed)
    times = np.exp(generator.normal(0, spread, (rows, 2, launches)))
    return effects.compare_launches([(list(base), list((1 + effect) * this)) for base, this in times], 0.95)


def held(estimates: list[effects.Estimate], ratio: float) -> float:
    return float(np.mean([each.low <= ratio <= each.high for each in estimates]))  # type: ignore[operator]


@pytest.mark.parametrize("launches", [3, 7, 8, 10, 25])
def test_the_interval_holds_its_confidence(launches: int) -> None:
    assert 0.925 <= held(simulate(0.03, 0.009, launches, 2000), 1.03) <= 0.975


def test_the_interval_stays_where_most_launches_are_though_one_side_alone_has_slow_ones() -> None:
    generator = np.random.default_rng(2)
    base, this = np.exp(generator.normal(0, 0.009, (2, 2000, 25)))
    this *= np.where(generator.random(this.shape) < 0.1, 1.08, 1)
    assert held(effects.compare_launches(list(zip(base, this, strict=True)), 0.95), 1.0) >= 0.93


def test_what_drifts_through_the_blocks_cancels() -> None:
    base, this, drift = np.array([100.0, 101] * 5), np.array([103.0, 102] * 5), np.linspace(1, 2, 10)
    [still], [drifting] = (
        effects.compare_launches([(list(base * each), list(this * each))], 0.95) for each in (np.ones(10), drift)
    )
    assert (drifting.low, drifting.high, drifting.p_value) == pytest.approx((still.low, still.high, still.p_value))


def test_one_against_one_has_a_ratio_and_nothing_else() -> None:
    [estimate] = effects.compare_launches([([2.0], [3.0])], 0.95)
    assert estimate.ratio == pytest.approx(1.5)
    assert (estimate.low, estimate.p_value, estimate.spread) == (None, None, None)


def test_a_lone_row_is_tested_by_students_t() -> None:
    base, this = [1.0, 1.01, 1.02], [5.0, 5.2, 5.1]
    [estimate] = effects.compare_launches([(base, this)], 0.95)
    expected = stats.ttest_1samp(np.log(this) - np.log(base), 0)
    assert estimate.p_value == pytest.approx(expected.pvalue)
    assert (math.log(estimate.low or 0), math.log(estimate.high or 0)) == pytest.approx(
        tuple(expected.confidence_interval(0.95))
    )


def test_rows_that_are_alike_tell_how_a_row_of_three_launches_spreads() -> None:
    found = simulate(0.0, 0.009, 3, 199) + simulate(1.0, 0.009, 3, 1)
    together = simulate(0.0, 0.009, 3, 200)
    assert min(each.freedom or 0 for each in together) > 20 and max(each.freedom or 0 for each in found[199:]) == 2
    assert all(each.spread is not None and each.spread > 0.007 for each in together)


def test_what_a_page_says_of_variances_is_what_they_were_drawn_from() -> None:
    generator = np.random.default_rng(4)
    true = 0.01**2 * 6 / generator.chisquare(6, 4000)  # Smyth's model: scaled inverse chi-square, worth 6
    seen = true * generator.chisquare(4, 4000) / 4
    prior, worth = effects.page_variance(seen, np.full(4000, 4.0))
    assert math.sqrt(prior) == pytest.approx(0.01, rel=0.05) and worth == pytest.approx(6, rel=0.2)
    assert effects.page_variance(np.full(9, 0.25), np.full(9, 4.0))[1] == math.inf
    assert effects.page_variance(seen[:1], np.full(1, 4.0)) == (0.0, 0.0)


@given(st.floats(1e-4, 1e4))
def test_the_inverse_of_trigamma_is_one(value: float) -> None:
    assert float(special.polygamma(1, effects._inverse_trigamma(value))) == pytest.approx(value, rel=1e-6)


@given(MEDIANS)
def test_intervals_hold_their_estimate(pairs: list[tuple[float, float]]) -> None:
    base, this = ([pair[side] for pair in pairs] for side in (0, 1))
    [estimate] = effects.compare_launches([(base, this)], 0.95)
    if estimate.low is not None and estimate.high is not None:
        assert estimate.low <= estimate.ratio * (1 + 1e-9) and estimate.ratio <= estimate.high * (1 + 1e-9)
    assert estimate.p_value is None or 0 <= estimate.p_value <= 1


@given(MEDIANS)
def test_exchanging_the_environments_inverts_the_ratio(pairs: list[tuple[float, float]]) -> None:
    base, this = ([pair[side] for pair in pairs] for side in (0, 1))
    [one], [two] = (effects.compare_launches([pair], 0.95) for pair in ((base, this), (this, base)))
    assert one.ratio == pytest.approx(1 / two.ratio)
    assert one.p_value == (None if two.p_value is None else pytest.approx(two.p_value))


def test_launches_that_are_all_alike_have_no_scatter_and_no_error() -> None:
    [estimate] = effects.compare_launches([([100.0] * 12, [90.0] * 12)], 0.95)
    assert (estimate.low, estimate.high) == (pytest.approx(0.9), pytest.approx(0.9))
    assert estimate.p_value is not None and estimate.p_value < 1e-12
