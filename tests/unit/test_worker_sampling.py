from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable

import pytest

from harness.worker import sampling, wire

TIMING = wire.SamplingRequest(
    warmup_s=0.0, warmup_calls=1, target_s=0.01, min_samples=3, max_samples=20, relative_error=0.0
)


def sampled(call: Callable[[], object]) -> wire.Timing:
    row = wire.Timing("ok")
    assert sampling.sample(call, TIMING, row) > 0
    return row


def test_a_clock_that_runs_slow_or_fast_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.perf_counter_ns
    assert sampled(lambda: None).status == "ok"
    for factor in (0.1, 10):
        monkeypatch.setattr(sampling, "_clock", lambda factor=factor: int(real() * factor))
        got = sampled(lambda: None)
        assert got.status == "wrong" and "by another clock" in got.message and got.samples_us


def test_processors_that_are_busy_are_counted_with_all_threads() -> None:
    assert sampling.idle_processors() < 0.5
    stop = threading.Event()

    def burn() -> None:
        while not stop.is_set():
            hashlib.sha256(bytes(1 << 16)).digest()

    thread = threading.Thread(target=burn)
    thread.start()
    try:
        assert sampling.idle_processors() > 0.05  # as much as this machine gives it
    finally:
        stop.set()
        thread.join()
    fields = sampled(lambda: None)
    assert fields.busy_processors > 0 and fields.switches_per_ms >= 0


def test_threads_that_leave_their_processor_are_counted() -> None:
    meter = sampling.Processors()
    for _ in range(50):
        time.sleep(0.0005)
    assert meter.switches_per_ms() > 0.1


def test_threads_that_calls_start_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def call() -> None:
        threads = [threading.Thread(target=int) for _ in range(7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert sampled(call).threads_started >= 7  # others of this machine are counted too
    told = iter([32_760, 310, 32_768])  # at first, at last, the highest number that there is
    monkeypatch.setattr(sampling, "_last_word", lambda path: next(told))
    assert sampling.Processors().threads_started(2) == (32_768 - 32_760 + 310 - 300) / 2
    monkeypatch.setattr(sampling, "_last_word", lambda path: None)
    assert sampling.Processors().threads_started(2) is None


def test_samples_of_a_gpu_stand_apart_but_cannot_exceed_the_time_that_passed() -> None:
    assert sampling.implausible(1e6, 50e6, "cuda") == ""
    assert sampling.implausible(1e6, 50e6, "cpu")
    assert sampling.implausible(200e6, 50e6, "cuda") and sampling.implausible(200e6, 50e6, "cpu")
