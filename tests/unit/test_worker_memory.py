"""The memory of calls, measured in a fresh process: what a call takes, what it keeps, and processes that end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.worker import channel, codec, memory, wire

MIB = 1 << 20
pytestmark = pytest.mark.process


class Stand:
    """In the place of the process that computes: does with an order what `measure` does."""

    def __init__(self, measure: Callable[[], wire.CallMemory]) -> None:
        self.measure = measure

    def answered(self, _order: Any, _payload: bytes) -> tuple[bytes, bytes]:
        return channel.DONE, codec.to_bytes(self.measure())


def nursery(measure: Callable[[], Any]) -> memory.Nursery:
    made: Any = Stand(measure)
    return memory.Nursery(made)


def measured(call: Callable[[], Any]) -> wire.CallMemory:
    return codec.from_bytes(wire.CallMemory, nursery(lambda: memory.on_cpu(call)).ask(b"", None))


@pytest.fixture
def kept() -> Iterator[list[bytearray]]:
    yield []


def near(size_bytes: int, expected: int) -> bool:
    return abs(size_bytes - expected) < MIB // 4


def test_what_a_call_takes_and_gives_back_is_its_peak() -> None:
    found = measured(lambda: bytearray(b"x" * (8 * MIB)) and None)
    assert near(found.peak_bytes, 16 * MIB)  # the text, and the array made of it
    assert near(found.kept_bytes, 0)


def test_what_the_first_call_keeps_counts_too(kept: list[bytearray]) -> None:
    def call() -> None:
        if not kept:
            kept.append(bytearray(b"x" * (8 * MIB)))

    found = measured(call)
    assert near(found.peak_bytes, 8 * MIB) and near(found.kept_bytes, 8 * MIB)
    assert not kept  # it was called in another process


def test_a_process_that_ends_or_hangs_says_so_and_the_next_one_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    started = os.getpid()

    def fails() -> wire.CallMemory:
        assert os.getpid() != started
        os.kill(os.getpid(), signal.SIGSEGV)
        raise AssertionError

    dying = nursery(fails)
    monkeypatch.setattr(memory, "LONGEST_S", 0.3)
    hanging = nursery(lambda: time.sleep(60))
    for _ in range(2):
        with pytest.raises(wire.Failed, match="its process ended"):
            dying.ask(b"", None)
        with pytest.raises(wire.Failed, match="took longer than"):
            hanging.ask(b"", None)


def test_a_process_that_the_calls_left_running_holds_nobody(tmp_path: Path) -> None:
    left = tmp_path / "left"

    def leaves() -> wire.CallMemory:
        child = os.fork()
        if child == 0:
            time.sleep(600)  # with a copy of every descriptor
        left.write_text(str(child))
        return wire.CallMemory(1, 0)

    found = nursery(leaves).ask(b"", None)
    os.kill(int(left.read_text()), signal.SIGKILL)  # ProcessLookupError: it was over before the answer came
    assert codec.from_bytes(wire.CallMemory, found).peak_bytes == 1


def test_a_system_that_does_not_tell_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "read_text", lambda _path: "VmRSS: 12 kB\n")
    with pytest.raises(wire.Failed, match="does not tell"):
        memory.on_cpu(lambda: None)
