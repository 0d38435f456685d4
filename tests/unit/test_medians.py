"""A launch's time, where a power cap begins among its samples: no step, whenever that is."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from harness.gpu import Reading
from harness.run.throttling import judged
from harness.schema.records import TargetTiming
from harness.stats.medians import COLD, HOT, time_us

CAP, FAST_US, SLOW_US = 0x4, 100.0, 111.0
SAMPLES = 40


def capped_from(first: int, samples: int = SAMPLES, noise: float = 0.0) -> TargetTiming:
    """Samples that take 11% longer from the first one under the cap on, with the readings that say so."""
    moments = [100 + index * 0.01 for index in range(samples)]
    times = [(FAST_US if index < first else SLOW_US) * (1 + noise * (index % 3 - 1)) for index in range(samples)]
    timing = TargetTiming(
        workload="w",
        target="kernel",
        order=0,
        status="ok",
        samples_us=times,
        sampled_s=moments,
        enqueue_us=[5.0] * samples,
        hot_us=times,
        hot_sampled_s=moments,
    )
    readings = [
        Reading(at_s=moment - 0.004, sm_mhz=1635.0 if index >= first else 1980.0, reasons=CAP if index >= first else 0)
        for index, moment in enumerate([*moments, moments[-1] + 0.01])
    ]
    return judged(timing, [Reading(at_s=99.0, sm_mhz=1980.0, reasons=0), *readings])


@pytest.mark.parametrize("mode", [COLD, HOT])
@pytest.mark.parametrize("samples", [10, SAMPLES, 200])
def test_a_launchs_time_takes_no_step_as_the_cap_begins_sample_by_sample_earlier(samples: int, mode: str) -> None:
    times = [time_us(capped_from(first, samples), mode) or 0 for first in range(samples + 1)]
    assert times[0] == SLOW_US and times[-1] == FAST_US
    step = 2 * (SLOW_US - FAST_US) / samples  # the whole difference, shared out among half of the samples
    assert all(0 <= one - two <= 1.001 * step for one, two in pairwise(times))


def test_with_half_before_the_cap_it_is_as_if_there_were_none() -> None:
    for first in range(SAMPLES // 2 + 1, SAMPLES + 1):
        assert time_us(capped_from(first), COLD) == FAST_US, first
    assert FAST_US < (time_us(capped_from(12), COLD) or 0) < SLOW_US


def test_samples_under_the_cap_are_kept_and_marked() -> None:
    timing = capped_from(30)
    assert len(timing.samples_us) == SAMPLES and timing.capped == list(range(29, SAMPLES)) == timing.hot_capped
    assert timing.throttled_samples == 0


@pytest.mark.parametrize(
    ("changes", "cold", "hot"),
    [
        ({}, 2.0, 1.0),
        ({"samples_us": [0.0, 1.0]}, None, None),
        ({"hot_us": [0.0]}, 2.0, None),
        ({"status": "crashed"}, None, None),
        ({"samples_us": []}, None, None),
    ],
)
def test_times_that_are_not_positive_are_none(changes: dict[str, Any], cold: float | None, hot: float | None) -> None:
    values = {"workload": "w", "target": "kernel", "order": 0, "status": "ok", "samples_us": [3.0, 1.0, 2.0]}
    timing = TargetTiming(**{**values, "hot_us": [1.0], **changes})
    assert (time_us(timing, COLD), time_us(timing, HOT)) == (cold, hot)
