"""`measuring` against stand-ins for the processes that compute: threads, whose kernel is numpy."""

from __future__ import annotations

import dataclasses
import mmap
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from harness.worker import channel, codec, host, inputs, measuring, sampling, target, wire
from harness.worker.measuring import Measured
from harness.worker.peer import Peer
from tests.numpy_attention import NumpyAttention, exact

SHAPE = (1, 2, 16, 8)
WORKLOAD = wire.WorkloadRequest(
    id="w",
    dtype="float32",
    recipes={"independent": 2},
    batch=1,
    heads=2,
    seq_len=16,
    head_dim=8,
    causal=False,
    scale=0.25,
)
LIMITS = {"rounding": 16.0, "kernelbench": 1e-4, "strict": 1e-3}
TIMING = wire.SamplingRequest(0.0, 2, 0.2, 12, 12, 0.0)
TAKES_NS, READ_NS = 2_000_000, 1_000  # of a call, and of a look at the clock
Kernel = Callable[[list[Any]], Any]


class Clock:
    """Time passes when a test says so: how busy a machine is decides nothing."""

    now_ns = 0

    def read_ns(self) -> int:
        self.now_ns += READ_NS
        return self.now_ns

    def read_s(self) -> float:
        return self.read_ns() / 1e9


CLOCK = Clock()


@pytest.fixture(autouse=True)
def virtual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "clock_ns", CLOCK.read_ns)
    monkeypatch.setattr(sampling, "_seconds", CLOCK.read_s)


def right(arrays: list[Any]) -> Any:
    q, k, v = arrays
    return exact(*(each.astype(np.float64) for each in (q, k, v)), False, 0.25)[0].astype(np.float32)


class StandIn:
    """Answers orders as `host` does, of one kernel whose outputs are `in_slots` or returned."""

    def __init__(self, kernel: Kernel, *, in_slots: bool, changes: str = "", takes_ns: int = TAKES_NS) -> None:
        self.calls = self.woken = 0
        self.takes_ns = takes_ns
        self.kernel, self.in_slots, self.changes = kernel, in_slots, changes
        ours, self.connection = channel.pair()
        self.peer = Peer(ours)
        self.outputs: list[Any] = []
        self.output = np.zeros(SHAPE, np.float32)
        self.outbox: Any = None
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        try:
            while True:
                kind, token, payload, file = self.connection.receive()
                if kind == channel.FORGET:
                    self.outputs = []
                elif kind != channel.METER:
                    answer = self._answer(kind, payload, file)
                    self.connection.send(channel.DONE, token, answer)
        except channel.Closed:
            pass
        finally:
            self.connection.close()

    def _answer(self, kind: bytes, payload: bytes, file: int | None) -> bytes:
        if file is not None:
            mapped = mmap.mmap(file, os.fstat(file).st_size)
            os.close(file)
        if kind == channel.OPEN:
            return codec.to_bytes(wire.Opened(self.in_slots, False))
        if kind == channel.MAP:
            self.memory, self.order = mapped, codec.from_bytes(wire.MapOrder, payload)
        elif kind == channel.WAKE:
            self.woken += 1
        elif kind == channel.CALL:
            first, count, _ = host.CALLED.unpack(payload)
            began = sampling.clock_ns()
            for slot in range(first, first + count):
                self._call(slot * self.order.slot_bytes)
            self.calls += 1
            lies = self.changes == "claims" or ("claims of" in self.changes and self.calls % 3)
            return host.SIZE.pack(0 if lies else sampling.clock_ns() - began)
        elif kind == channel.DESCRIBE:
            shared = self.changes == "its one output" and not self.order.copies
            return codec.to_bytes(wire.Described("float32", list(SHAPE), True, shared))
        elif kind == channel.OUTBOX:
            self.outbox = mapped
        elif kind == channel.DELIVER:
            data = b"".join(np.asarray(output() if callable(output) else output).tobytes() for output in self.outputs)
            self.outbox[: len(data)] = data
        elif kind == channel.TELL:
            return codec.to_bytes(wire.ProcessUse(1.0, 0.5, 0.0, 0.25, 1, 0.0))
        return b""

    def _call(self, start: int) -> None:
        if self.changes == "dies":
            raise channel.Closed
        arrays = [np.ndarray(SHAPE, np.float32, self.memory, start + offset) for offset in self.order.offsets]
        output = self.kernel(arrays)
        CLOCK.now_ns += self.takes_ns
        if self.in_slots:
            np.ndarray(SHAPE, np.float32, self.memory, start + self.order.output_offset)[...] = output
        elif "one output" in self.changes:
            self.output[...] = output
            self.outputs.append(self.output.copy() if self.order.copies else self.output)
        else:
            self.outputs.append(output)


@pytest.fixture
def references() -> Iterator[Peer]:
    stand_in = StandIn(right, in_slots=False)
    yield stand_in.peer
    stand_in.peer.connection.close()
    stand_in.thread.join()


def digest() -> str:
    arrays = NumpyAttention(WORKLOAD).arrays(measuring.RECIPE, 0, 0)
    return inputs.digest([right(arrays)])


def measured(
    references: Peer,
    kernel: Kernel,
    *,
    in_slots: bool = True,
    other_bits: bool = True,
    changes: str = "",
    digests: list[str] | None = None,
    takes_ns: int = TAKES_NS,
) -> wire.TargetTiming:
    stand_in = StandIn(kernel, in_slots=in_slots, changes=changes, takes_ns=takes_ns)
    request = wire.TimeRequest(
        workloads=[WORKLOAD],
        seed=0,
        threads=1,
        device="cpu",
        rows=[["w", "kernel"]],
        order_seed=0,
        timing=TIMING,
        expected_sha256={"w": [digest()] if digests is None else digests},
        other_bits=other_bits,
        limits={"w": LIMITS},
    )
    row = wire.TargetTiming("ok", workload="w", target="kernel")
    with ThreadPoolExecutor(1) as pool:
        launch = Measured(request, {"w": NumpyAttention(WORKLOAD)}, references, stand_in.peer, pool)
        assert launch.row(row) >= 0
        stand_in.peer.connection.close()
        stand_in.thread.join()
        launch.judge()
    return row


@pytest.mark.parametrize("in_slots", [True, False])
def test_a_right_kernel_is_timed_and_its_timed_calls_are_judged(references: Peer, in_slots: bool) -> None:
    row = measured(references, right, in_slots=in_slots)
    assert (row.status, row.message, row.correct, row.checked, row.other_bits) == ("ok", "", True, 2, 0)
    assert len(row.samples_us) == 12 and min(row.samples_us) > 0 and row.warmup_calls == 2
    assert row.asking_us is not None
    assert (row.busy_processors, row.switches_per_ms, row.threads_started) == (1.0, 0.5, 0.0)


def test_short_calls_share_an_order(references: Peer) -> None:
    row = measured(references, lambda arrays: arrays[0], digests=[], takes_ns=target.SAMPLE_NS // 20)
    assert row.calls_per_sample == 20 and row.correct is None and row.checked == 0


@pytest.mark.parametrize(("changes", "correct"), [("its one output", True), ("one output, which it denies", False)])
def test_of_calls_that_return_one_output_again_and_again_each_is_copied(
    references: Peer, changes: str, correct: bool
) -> None:
    row = measured(references, right, in_slots=False, changes=changes, takes_ns=target.SAMPLE_NS // 10)
    assert row.correct is correct and row.calls_per_sample == 10


def keeps(kernel: Kernel) -> Kernel:
    """The first answers of each kind again and again."""
    kept: list[Any] = []

    def call(arrays: list[Any]) -> Any:
        if len(kept) < 2:
            kept.append(kernel(arrays))
        return kept[0]

    return call


def test_an_answer_that_is_kept_is_wrong_in_a_timed_call(references: Peer) -> None:
    row = measured(references, keeps(right))
    assert row.correct is False and row.message.startswith("its output in a timed call is not right: it fails the rou")


@pytest.mark.parametrize(("other_bits", "correct", "said"), [(True, True, ""), (False, False, "not the validated one")])
def test_other_bits_are_judged_unless_determinism_was_asked_for(
    references: Peer, other_bits: bool, correct: bool, said: str
) -> None:
    row = measured(references, lambda arrays: right(arrays) * np.float32(1 + 1e-7), other_bits=other_bits)
    assert row.correct is correct and said in row.message and row.other_bits == 2


def test_what_is_computed_only_when_it_is_read_takes_that_time(references: Peer) -> None:
    def later(arrays: list[Any]) -> Any:
        copies = [array.copy() for array in arrays]

        def compute() -> Any:
            CLOCK.now_ns += 3_000_000
            return right(copies)

        return compute

    row = measured(references, later, in_slots=False)
    assert row.correct is True and min(row.samples_us) > (TAKES_NS + 2_900_000) / 1e3


def test_a_process_that_claims_to_have_done_nothing_is_not_believed(
    references: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "SAMPLE_NS", 1)  # an order is one call, whatever its process says of its time
    row = measured(references, right, changes="claims")
    assert min(row.samples_us) > 0.98 * TAKES_NS / 1e3 and row.correct is True


def test_orders_that_it_has_left_out_hide_nothing_in_those_that_count(
    references: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps its answers in every third order, and says of all others that they waited."""
    calls: list[Any] = []

    def third(arrays: list[Any]) -> Any:
        calls.append(right(arrays))
        if len(calls) % 3:
            CLOCK.now_ns += 10_000_000  # honest work
            return calls[-1]
        return calls[0]

    monkeypatch.setattr(target, "SAMPLE_NS", 1)  # an order is one call, whatever its process says of its time
    patient = dataclasses.replace(TIMING, min_samples=12, max_samples=60, target_s=5.0, relative_error=-1)
    monkeypatch.setattr(sys.modules[__name__], "TIMING", patient)
    row = measured(references, third, changes="claims of two in three")
    assert len(row.samples_us) == 20 and max(row.samples_us) < 10_000, "what it had left out does not count"
    assert row.correct is False and "in a timed call" in row.message


def test_a_process_that_ends_fails_its_target_and_those_that_follow(references: Peer) -> None:
    row = measured(references, right, changes="dies")
    assert (row.status, row.message, row.samples_us) == ("crashed", "its process ended", [])


@pytest.mark.parametrize(("command", "killed"), [("kill -9 $$", True), ("kill $$", False), ("exit 1", False)])
def test_a_child_that_was_killed_is_told_from_one_that_ended(command: str, killed: bool) -> None:
    child = os.posix_spawn("/bin/sh", ["sh", "-c", command], {})
    assert measuring._killed(child) == killed


def test_an_answer_that_nobody_asked_for_ends_a_process_for_good() -> None:
    ours, theirs = channel.pair()
    theirs.send(channel.DONE, bytes(channel.TOKEN_BYTES), b"early")
    peer = Peer(ours)
    with pytest.raises(wire.Failed) as raised:
        peer.ask(channel.TELL)
    assert raised.value.status == "wrong" and "was not asked" in raised.value.message
    with pytest.raises(wire.Failed) as raised:
        peer.ask(channel.TELL)
    assert raised.value.status == "not_run"


@pytest.mark.parametrize("said", [b"", b"[]", b'{"version": 1}', b"[" * 100_000, b'{"version": 1, "dtype": 3}'])
def test_an_answer_that_cannot_be_read_is_the_targets_failure(said: bytes) -> None:
    peer = Peer(channel.pair()[0])
    with pytest.raises(wire.Failed) as raised:
        peer.read(wire.Described, said)
    assert raised.value.status == "crashed"
