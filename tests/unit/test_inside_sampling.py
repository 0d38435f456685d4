from __future__ import annotations

import time

import pytest

from harness.inside import sampling

TIMING = {
    "warmup_s": 0.0,
    "warmup_calls": 1,
    "target_s": 0.01,
    "min_samples": 3,
    "max_samples": 20,
    "relative_error": 0.0,
}


def test_a_clock_that_runs_slow_or_fast_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.perf_counter_ns
    assert "status" not in sampling.sample(lambda: None, TIMING)
    for factor in (0.1, 10):
        monkeypatch.setattr(sampling, "_clock", lambda factor=factor: int(real() * factor))
        got = sampling.sample(lambda: None, TIMING)
        assert got["status"] == "wrong" and "by another clock" in got["message"] and got["samples_us"]


def test_samples_of_a_gpu_stand_apart_but_cannot_exceed_the_time_that_passed() -> None:
    assert sampling.implausible(1e6, 50e6, "cuda") == ""
    assert sampling.implausible(1e6, 50e6, "cpu")
    assert sampling.implausible(200e6, 50e6, "cuda") and sampling.implausible(200e6, 50e6, "cpu")
