"""What is minimised, when a setting is rejected for its launches, and when a winner is one."""

from __future__ import annotations

import math

import pytest

from harness.experiments.admission import Refusal
from harness.schema.records import LaunchRecord, Outcome
from harness.schema.sweep_records import Compared, Trial
from harness.search.sweep.measure import LEVEL, by_score, compare, confirm, score, times_of, trial_of
from tests.unit.hand_made import launch, timing

OLD, NEW = "torch2.1.0-cu121-py311", "torch2.5.0-cu121-py311"


def launches(kernel: str, environment: str, *times: float, **changes: object) -> list[LaunchRecord]:
    return [
        launch(
            timing(us, us, 9 * us, workload="seed-fp16", **changes), kernel=kernel, environment=environment, index=index
        )
        for index, us in enumerate(times)
    ]


def compared(ratio: float, low: float | None = None, high: float | None = None, environment: str = OLD) -> Compared:
    return Compared(
        environment=environment,
        workload="seed-fp16",
        mode="cold",
        incumbent_us=[100.0],
        this_us=[100.0 * ratio],
        ratio=ratio,
        low=low,
        high=high,
    )


def trial(*each: Compared) -> Trial:
    return Trial(setting={"A": 1}, kernel="mine.1", status="ok", compared=list(each), score=score(each))


def test_the_score_is_the_geometric_mean_over_environments() -> None:
    assert score([compared(0.5), compared(2.0)]) == pytest.approx(1.0)
    assert score([compared(0.9), compared(0.8)]) == pytest.approx(math.sqrt(0.72))


def test_a_setting_is_compared_with_the_incumbent_in_the_same_blocks() -> None:
    found = [
        *launches("mine", OLD, 100, 200, 100),
        *launches("mine.1", OLD, 80, 160),
        *launches("mine", NEW, 10, 10),
        *launches("mine.1", NEW, 9, 9, 1000),
    ]
    made = trial_of({"A": 1}, "mine.1", "mine", found, {})
    assert made.status == "ok" and made.stage is None and made.score is not None
    assert [(each.environment, each.incumbent_us, each.this_us) for each in made.compared] == [
        (OLD, [100, 200], [80, 160]),
        (NEW, [10, 10], [9, 9]),
    ]
    assert all(each.low is None for each in made.compared), "two launches support no interval"


def test_a_gpu_is_compared_by_cold_calls_and_by_replays() -> None:
    found = [*launches("mine", OLD, 100, hot_us=[50.0]), *launches("mine.1", OLD, 90, hot_us=[40.0])]
    made = trial_of({"A": 1}, "mine.1", "mine", found, {})
    assert {each.mode: each.ratio for each in made.compared} == pytest.approx({"cold": 0.9, "hot": 0.8})
    without = [*found[:1], *launches("mine.1", OLD, 90)]
    lacking = trial_of({"A": 1}, "mine.1", "mine", without, {})
    assert lacking.stage == "time" and "no hot time of seed-fp16" in lacking.message and lacking.score is None


def test_what_was_refused_has_no_score_however_fast_it_is() -> None:
    why = Refusal(stage="poison", environment=NEW, outcome=Outcome(status="wrong", message="heap: NaN"))
    found = [*launches("mine", OLD, 100), *launches("mine.1", OLD, 1)]
    made = trial_of({"A": 1}, "mine.1", "mine", found, {"mine.1": why})
    assert (made.stage, made.environment, made.message, made.score) == ("poison", NEW, "heap: NaN", None)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (launches("mine.1", NEW, 1, correct=False), "not the validated one"),
        (launches("mine.1", NEW, 1, status="crashed", message="signal 11"), "signal 11"),
        ([launch(kernel="mine.1", environment=NEW, status="timed_out", message="too long")], "too long"),
        ([], "no cold time"),
    ],
)
def test_a_setting_that_fails_when_it_is_timed_is_rejected(bad: list[LaunchRecord], said: str) -> None:
    found = [*launches("mine", OLD, 100), *launches("mine", NEW, 100), *launches("mine.1", OLD, 1), *bad]
    made = trial_of({"A": 1}, "mine.1", "mine", found, {})
    assert made.stage == "time" and said in made.message and made.score is None and made.status != "ok"


def test_times_of_another_output_count_for_nothing() -> None:
    assert not times_of(launches("mine", OLD, 100, correct=False), "mine")
    assert compare({}, {}) == ([], "")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (compared(0.9, 0.85, 1.0, NEW), "0.900 [0.850, 1.000]"),
        (compared(0.9, 0.7, 1.1, NEW), "not below 1"),
        (compared(1.5, 1.4, 1.6, NEW), f"{NEW}, seed-fp16, cold: 1.500"),
        (compared(0.5, None, None, NEW), "too few launches"),
        (compared(0.5, 0.4, math.nan, NEW), "not below 1"),
    ],
)
def test_a_winner_is_not_confirmed_by_one_environment_alone(other: Compared, said: str) -> None:
    confirmed, why = confirm(trial(compared(0.5, 0.4, 0.6), other))
    assert not confirmed and said in why


def test_a_winner_is_confirmed_where_every_interval_lies_below_one_and_none_where_it_is_wrong() -> None:
    assert confirm(trial(compared(0.9, 0.85, 0.95), compared(0.8, 0.7, 0.999, NEW)))[0]
    wrong = Trial(setting={"A": 1}, kernel="mine.1", stage="correctness", status="wrong", environment=NEW, message="19")
    assert confirm(wrong) == (False, f"rejected at correctness in {NEW}: 19")


def test_four_launches_of_each_support_an_interval() -> None:
    def high(incumbent: tuple[float, ...], this: tuple[float, ...]) -> float | None:
        times = (times_of(launches("mine", OLD, *each), "mine") for each in (incumbent, this))
        return compare(*times)[0][0].high

    four = high((100, 101, 102, 103), (80, 81, 82, 83))
    assert four is not None and four < 1 and LEVEL == 0.05
    assert high((1, 2, 3), (1, 2, 3)) is None


def test_the_fastest_come_first_and_the_rejected_nowhere() -> None:
    slow, fast = trial(compared(1.2)), trial(compared(0.9))
    rejected = Trial(setting={"A": 2}, kernel="mine.2", stage="build", status="build_failed")
    assert by_score([slow, rejected, fast]) == [fast, slow]
