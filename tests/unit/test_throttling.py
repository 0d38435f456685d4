from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.gpu import Reading
from harness.run.throttling import judged, names, relative, watched, window
from harness.schema.records import TargetTiming

THERMAL, CAP, IDLE = 0x40, 0x4, 0x1


def readings(*reasons: int, clocks: dict[int, float] | None = None) -> list[Reading]:
    """One every 10 ms from second 100 on."""
    return [
        Reading(
            at_s=100 + i * 0.01,
            sm_mhz=(clocks or {}).get(i, 1980.0),
            memory_mhz=3201.0,
            reasons=r,
            power_w=300.0 + i,
            temperature_c=40.0,
        )
        for i, r in enumerate(reasons)
    ]


def timing(cold: int = 10, hot: int = 0, first_s: float = 100.0, step_s: float = 0.01, **changes: Any) -> TargetTiming:
    """Samples of 10 us that end in the middle between readings."""
    moments = [first_s + i * step_s + 0.005 for i in range(max(cold, hot))]
    values = {
        "workload": "w",
        "target": "kernel",
        "order": 0,
        "status": "ok",
        "clock": "cuda_event",
        "samples_us": [10.0 + i for i in range(cold)],
        "sampled_s": moments[:cold],
        "enqueue_us": [5.0] * cold,
        "hot_us": [8.0] * hot,
        "hot_sampled_s": moments[:hot],
    }
    return TargetTiming(**{**values, **changes})


def test_samples_beside_a_throttled_reading_are_left_out_and_counted() -> None:
    seen = readings(0, 0, 0, THERMAL, 0, 0, 0, 0, 0, 0, 0)
    row = judged(timing(cold=10, hot=10), seen)
    # From the reading before it to the one after it: 100.02 to 100.04 s.
    assert row.samples_us == [10.0, 11.0, 14.0, 15.0, 16.0, 17.0, 18.0, 19.0]
    assert len(row.sampled_s) == len(row.enqueue_us) == 8 and len(row.hot_us) == len(row.hot_sampled_s) == 8
    assert row.throttled_samples == 4 and row.status == "ok" and row.sm_mhz == 1980


def test_a_long_sample_that_began_before_the_slowdown_ended_is_left_out() -> None:
    seen = readings(THERMAL, 0, 0, 0)
    late = timing(cold=1, samples_us=[30_000.0], sampled_s=[100.035], enqueue_us=[5.0])
    assert judged(late, seen).status == "not_run"
    assert judged(replace(late, samples_us=[20_000.0]), seen).status == "ok"


def test_a_row_without_any_sample_left_is_no_number_and_says_why() -> None:
    row = judged(timing(cold=5, hot=5), readings(*[THERMAL] * 8))
    assert (row.status, row.samples_us, row.throttled_samples) == ("not_run", [], 10)
    assert "was throttled during all 5 samples" in row.message and row.message == row.hot_message


@pytest.mark.parametrize("reason", [0, IDLE, 0x2, 0x10, 0x100, CAP])
def test_what_holds_for_whole_runs_leaves_nothing_out(reason: int) -> None:
    assert judged(timing(), readings(*[reason] * 12)).throttled_samples == 0


def test_under_the_power_cap_samples_at_a_lower_clock_stay_and_are_marked() -> None:
    low = {i: 1635.0 for i in range(8, 12)}
    row = judged(timing(cold=12), readings(*[0] * 8, *[CAP] * 4, clocks=low))
    assert len(row.samples_us) == 12 and row.capped == [7, 8, 9, 10, 11] and row.throttled_samples == 0
    always = judged(timing(cold=12), readings(*[CAP] * 12, clocks={i: 1635.0 for i in range(1, 12)}))
    assert len(always.samples_us) == len(always.capped) == 12 and always.sm_mhz == 1635
    both = judged(timing(cold=12), readings(*[0] * 4, THERMAL, *[0] * 3, *[CAP] * 4, clocks=low))
    assert [both.samples_us[index] for index in both.capped] == [17.0, 18.0, 19.0, 20.0, 21.0]


@pytest.mark.parametrize("without", [[], [Reading(at_s=100.0)]])
def test_without_readings_everything_stays(without: list[Reading]) -> None:
    row = judged(timing(hot=3), without)
    assert len(row.samples_us) == 10 and len(row.hot_us) == 3 and row.sm_mhz is None


def test_the_clock_of_a_short_window_is_the_nearest_readings_and_of_a_far_one_unknown() -> None:
    seen = readings(0, 0, clocks={1: 1500.0})
    assert judged(timing(cold=1, first_s=100.008), seen).sm_mhz == 1500
    assert judged(timing(cold=1, first_s=101), seen).sm_mhz is None


def test_what_was_watched_is_told_of_the_time_of_samples_alone() -> None:
    seen = readings(*[IDLE] * 10, *[CAP] * 4, THERMAL | CAP, 0, *[IDLE] * 10)
    told = watched("GPU-1", seen, [(100.105, 100.145)], 2)
    assert told.readings == 6 and told.throttle_reasons == ["sw_power_cap", "hw_thermal_slowdown"]
    assert told.throttled_share == pytest.approx(1 / 6) and told.power_w == 315 and told.other_processes == 2
    nothing = watched("GPU-1", seen, [], None)
    assert (nothing.readings, nothing.sm_mhz, nothing.throttled_share) == (0, None, 0.0)


def test_names_of_reasons() -> None:
    assert names(0) == [] and names(0x84) == ["sw_power_cap", "hw_power_brake_slowdown"]


def test_moments_become_seconds_since_the_first_sample() -> None:
    rows = relative([timing(first_s=103.0), timing(first_s=100.0, hot=2), timing(cold=0)])
    assert rows[1].sampled_s[0] == rows[1].hot_sampled_s[0] == 0 and rows[0].sampled_s[0] == pytest.approx(3.0)
    assert rows[2].sampled_s == [] and window(rows[2]) is None
