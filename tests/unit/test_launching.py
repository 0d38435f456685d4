from __future__ import annotations

from typing import Any

import pytest

from harness.records import LaunchRecord, Timing
from harness.steps.launching import implausible

ASKED = {("seed-fp32", "kernel"), ("seed-fp32", "flash")}


def row(target: str, **changes: Any) -> Timing:
    values = {"workload": "seed-fp32", "target": target, "order": 0, "status": "ok", "samples_us": [100.0, 120.0]}
    return Timing(**{**values, "calls_per_sample": 10, **changes})


def record(*timings: Timing) -> LaunchRecord:
    return LaunchRecord(
        environment="e", kernel="k", device="cpu", key="", index=0, position=0, started_utc="", duration_s=2.0,
        status="ok", timings=list(timings),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("timings", "said"),
    [
        ([row("kernel"), row("flash")], ""),
        ([row("kernel"), row("flash", status="unsupported", samples_us=[])], ""),
        ([row("kernel")], "other rows"),
        ([row("kernel"), row("kernel"), row("flash")], "other rows"),
        ([row("kernel"), row("math")], "other rows"),
        ([row("kernel", samples_us=[5e-324]), row("flash")], "less than a nanosecond"),
        ([row("kernel", calls_per_sample=0), row("flash")], "less than a nanosecond"),
        ([row("kernel", samples_us=[3e6], calls_per_sample=1), row("flash")], "took 2 s in all"),
        ([row("kernel", samples_us=[1e308]), row("flash")], "took 2 s in all"),
    ],
)
def test_a_launch_gives_what_was_asked_for_in_the_time_that_passed(timings: list[Timing], said: str) -> None:
    found = implausible(record(*timings), ASKED)
    assert said in found and bool(found) == bool(said)
