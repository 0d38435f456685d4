from __future__ import annotations

import threading
import time

import pytest

from harness.worker import sampling


def read_in_turn(monkeypatch: pytest.MonkeyPatch, name: str, *values_ns: int) -> None:
    monkeypatch.setattr(sampling, name, iter(values_ns).__next__)


def test_the_time_of_all_threads_is_counted() -> None:
    began_ns = sampling.process_ns()

    def work() -> None:
        while sampling.process_ns() - began_ns < 10_000_000:
            pass

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()  # while this thread sleeps
    assert sampling.process_ns() - began_ns >= 10_000_000


def test_busy_processors_are_processor_time_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    read_in_turn(monkeypatch, "clock_ns", 0, 100, 200)
    read_in_turn(monkeypatch, "process_ns", 0, 150, 500)
    usage = sampling.Usage()
    assert (usage.processors(), usage.processors()) == (1.5, 2.5)


@pytest.mark.parametrize(
    ("busy", "quietest", "looks"),
    [((0.0, 9.0), 0.0, 1), ((1.0, 0.4, 0.01, 9.0), 0.01, 3), ((2.0, 1.0, 3.0) * 3, 1.0, sampling.IDLE_LOOKS)],
)
def test_the_quietest_moment_counts_and_it_is_looked_until_it_is_quiet(
    monkeypatch: pytest.MonkeyPatch, busy: tuple[float, ...], quietest: float, looks: int
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(sampling, "_sleep", slept.append)
    told = iter(busy)
    monkeypatch.setattr(sampling.Usage, "processors", lambda _: next(told))
    assert sampling.idle_processors() == quietest and slept == [sampling.IDLE_S] * looks


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
