"""reports.statistics against simulated launches and published values."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from reports import statistics

MEDIANS = st.lists(st.floats(1.0, 1e6), min_size=1, max_size=12)


def simulate(effect: float, spread: float, launches: int, runs: int, seed: int = 1) -> list[statistics.Estimate]:
    generator = np.random.default_rng(seed)
    pairs = [
        (
            list(np.exp(generator.normal(0, spread, launches))),
            list((1 + effect) * np.exp(generator.normal(0, spread, launches))),
        )
        for _ in range(runs)
    ]
    return statistics.compare_launches(pairs, 0.95)


def outcomes(estimates: list[statistics.Estimate], min_effect: float) -> list[str]:
    return [statistics.decide(estimate, estimate.p_value, min_effect, 0.05) for estimate in estimates]


def test_three_percent_at_a_spread_of_point_nine_is_usually_found() -> None:
    assert outcomes(simulate(0.03, 0.009, 10, 400), 0.01).count("slower") >= 380


def test_no_change_is_hardly_ever_called_one() -> None:
    found = outcomes(simulate(0.0, 0.009, 10, 1000), 0.01)
    assert found.count("slower") + found.count("faster") <= 5


def test_faster_is_found_as_slower_is() -> None:
    assert outcomes(simulate(-0.04, 0.009, 10, 200), 0.01).count("faster") >= 190


def test_the_interval_holds_its_confidence() -> None:
    estimates = simulate(0.03, 0.009, 10, 2000)
    held = np.mean([estimate.low <= 1.03 <= estimate.high for estimate in estimates])  # type: ignore[operator]
    assert 0.94 <= held <= 0.98


def test_three_against_three_is_undecided_however_large_the_change() -> None:
    estimate = statistics.compare_launches([([1.0, 1.01, 1.02], [5.0, 5.1, 5.2])], 0.95)[0]
    assert estimate.low is None
    assert estimate.p_value == pytest.approx(0.1)
    assert statistics.decide(estimate, estimate.p_value, 0.01, 0.05) == "undecided"
    assert statistics.smallest_effect(estimate, 1, 0.01, 0.95, 0.05) is None


def test_one_against_one_has_a_ratio_and_nothing_else() -> None:
    estimate = statistics.compare_launches([([2.0], [3.0])], 0.95)[0]
    assert estimate.ratio == pytest.approx(1.5)
    assert (estimate.low, estimate.p_value, estimate.spread) == (None, None, None)


def test_ten_against_ten_reaches_the_exact_floor() -> None:
    base, this = [100 + i for i in range(10)], [200 + i for i in range(10)]
    estimate = statistics.compare_launches([(base, this)], 0.95)[0]
    assert estimate.p_value == pytest.approx(2 / math.comb(20, 10))
    assert estimate.p_value == estimate.lowest_p


def test_a_lone_change_survives_the_false_discovery_rate_over_hundreds_of_rows() -> None:
    estimates = simulate(0.0, 0.009, 10, 300) + simulate(0.10, 0.009, 10, 1)
    q_values = statistics.adjust([estimate.p_value for estimate in estimates])
    assert statistics.decide(estimates[-1], q_values[-1], 0.01, 0.05) == "slower"


def test_the_false_discovery_rate_can_stop_a_call() -> None:
    estimate = simulate(0.05, 0.009, 10, 1)[0]
    assert statistics.decide(estimate, 0.2, 0.01, 0.05) == "undecided"


def test_ties_use_the_permutation_distribution() -> None:
    base, this = [1.0, 1.0, 2.0, 3.0], [2.0, 3.0, 4.0, 5.0]
    expected = stats.permutation_test(
        (this, base),
        lambda a, b: stats.rankdata(np.concatenate([a, b]))[:4].sum(),
        permutation_type="independent",
        n_resamples=100_000,
    ).pvalue
    assert statistics.compare_launches([(base, this)], 0.95)[0].p_value == pytest.approx(expected)


def test_interval_rank_is_the_published_one() -> None:
    # Hollander and Wolfe, table of the Mann-Whitney statistic: 23 is the two-sided 5% point of 10 against 10.
    assert statistics._interval_rank(10, 10, 0.95) == 24
    assert statistics._interval_rank(3, 3, 0.95) == 0


def test_unequal_counts_are_compared_in_their_own_order() -> None:
    pairs = [([1.0] * 4, [2.0] * 6), ([1.0, 1.1, 1.2], [3.0]), ([1.0, 1.3, 1.2, 1.1], [1.0, 1.1, 1.2, 1.3, 1.4, 1.5])]
    assert [round(e.ratio, 2) for e in statistics.compare_launches(pairs, 0.95)][:2] == [2.0, 2.73]


def test_smallest_effect_is_found_about_four_times_in_five() -> None:
    size = statistics.smallest_effect(simulate(0.0, 0.009, 10, 1, seed=3)[0], 1, 0.01, 0.95, 0.05)
    assert size is not None and 0.015 < size < 0.035
    typical = np.median([statistics.smallest_effect(e, 1, 0.01, 0.95, 0.05) for e in simulate(0, 0.009, 10, 200)])
    found = outcomes(simulate(float(typical), 0.009, 10, 500, seed=2), 0.01).count("slower")
    assert 0.7 <= found / 500 <= 0.95


def test_more_rows_raise_the_smallest_effect() -> None:
    estimate = simulate(0.0, 0.009, 10, 1)[0]
    one, many = (statistics.smallest_effect(estimate, rows, 0.01, 0.95, 0.05) for rows in (1, 1000))
    assert one is not None and many is not None and many > one
    assert statistics.smallest_effect(estimate, 10_000, 0.01, 0.95, 0.05) is None


def test_launches_needed_can_pass_the_false_discovery_rate() -> None:
    estimate = simulate(0.0, 0.001, 3, 1)[0]
    count = statistics.launches_needed(estimate, 3000, 0.05, 0.05)
    assert statistics.lowest_p(count, count) <= 0.05 / 3000


def test_published_pass_intervals() -> None:
    # "Rule of three" upper bound, exactly: 1 - 0.025 ** (1 / 100).
    assert statistics.pass_interval(0, 100, 0.95) == (0.0, pytest.approx(1 - 0.025**0.01))
    assert statistics.pass_interval(100, 100, 0.95)[1] == 1.0


def test_adjust_leaves_absent_values_absent() -> None:
    assert statistics.adjust([0.01, None, 0.04]) == [pytest.approx(0.02), None, pytest.approx(0.04)]
    assert statistics.adjust([]) == []


@given(MEDIANS, MEDIANS)
def test_any_positive_times_give_an_ordered_interval_and_a_probability(base: list[float], this: list[float]) -> None:
    estimate = statistics.compare_launches([(base, this)], 0.95)[0]
    if estimate.low is not None and estimate.high is not None:
        assert estimate.low <= estimate.ratio * (1 + 1e-9) and estimate.ratio <= estimate.high * (1 + 1e-9)
    assert estimate.p_value is None or 0 < estimate.p_value <= 1


@given(MEDIANS, MEDIANS)
def test_exchanging_the_environments_inverts_the_ratio(base: list[float], this: list[float]) -> None:
    one, two = statistics.compare_launches([(base, this), (this, base)], 0.95)
    assert one.ratio == pytest.approx(1 / two.ratio)
    assert one.p_value == (None if two.p_value is None else pytest.approx(two.p_value))


def test_the_interval_of_a_median_holds_its_confidence_and_is_absent_where_none_exists() -> None:
    assert statistics.median_interval([1.0, 2.0, 3.0, 4.0, 5.0], 0.95) is None
    assert statistics.median_interval([6.0, 1.0, 2.0, 3.0, 4.0, 5.0], 0.95) == (1.0, 6.0)
    assert statistics.median_interval(list(map(float, range(1, 11))), 0.95) == (2.0, 9.0)
    generator = np.random.default_rng(3)
    intervals = [statistics.median_interval(list(generator.lognormal(size=10)), 0.95) for _ in range(4000)]
    held = np.mean([low <= 1.0 <= high for low, high in intervals])  # type: ignore[misc]
    assert 0.97 <= held <= 0.99  # exactly 1 - 2 * 11 / 1024
