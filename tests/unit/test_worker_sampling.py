from __future__ import annotations

import hashlib
import threading
import time

import pytest

from harness.worker import sampling


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
    usage = sampling.Usage()
    sum(range(1000))
    assert usage.processors() > 0


def test_threads_that_leave_their_processor_are_counted() -> None:
    before = sampling.switches()
    for _ in range(50):
        time.sleep(0.0005)
    assert sampling.switches() - before > 40


def test_threads_that_calls_start_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def call() -> None:
        threads = [threading.Thread(target=int) for _ in range(7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    usage = sampling.Usage()
    for _ in range(3):
        call()
    assert (usage.threads_started(3) or 0) >= 7  # others of this machine are counted too
    told = iter([32_760, 310, 32_768])  # at first, at last, the highest number that there is
    monkeypatch.setattr(sampling, "_last_word", lambda path: next(told))
    assert sampling.Usage().threads_started(2) == (32_768 - 32_760 + 310 - 300) / 2
    monkeypatch.setattr(sampling, "_last_word", lambda path: None)
    assert sampling.Usage().threads_started(2) is None


def test_samples_of_a_gpu_stand_apart_but_cannot_exceed_the_time_that_passed() -> None:
    assert sampling.implausible(1e6, 50e6) == ""
    assert "by another clock" in sampling.implausible(200e6, 50e6)
