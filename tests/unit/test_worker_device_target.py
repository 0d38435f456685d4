"""`device_target` against a stand-in for the process that computes on a GPU, whose calls take the time that they are
told to, and which says of them what it likes."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import MagicMock

import pytest

from harness.worker import channel, codec, fresh, host, target, wire
from harness.worker.measuring import Measured
from tests.numpy_attention import NumpyAttention
from tests.unit.test_worker_measuring import (
    CLOCK,
    LIMITS,
    TIMING,
    WORKLOAD,
    Kernel,
    StandIn,
    digest,
    keeps,
    right,
    virtual,
)

MODULES = ("events", "tensors", "device_fresh", "device_target")
FLUSH_US, CALL_US = 200.0, 8000.0
__all__ = ["virtual"]  # a fixture


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`DeviceTarget` with a host's memory."""
    import importlib

    import harness.worker

    for name in MODULES:
        monkeypatch.delitem(sys.modules, f"harness.worker.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "torch", MagicMock())
    module = importlib.import_module("harness.worker.device_target")
    monkeypatch.setattr(module, "ORDERS", {"cold": 4, "hot": 4, "eager": 4})
    monkeypatch.setattr(module, "MOST_CALLS", 4)
    monkeypatch.setattr(module.events, "_clock", CLOCK.read_ns)
    monkeypatch.setattr(module.events, "_seconds", CLOCK.read_s)
    monkeypatch.setattr(module.events, "SPAN_S", 4.5 * CALL_US / 1e6)

    class Pretended(module.DeviceTarget):  # type: ignore[misc, name-defined]
        slots_of = fresh.Slots
        _array = target.Target._array

        def _ended(self, began: int) -> int:
            return CLOCK.read_ns() - began

    module.DeviceTarget = Pretended  # which makes others of its kind
    yield module
    for name in MODULES:
        sys.modules.pop(f"harness.worker.{name}", None)
        if hasattr(harness.worker, name):
            delattr(harness.worker, name)


class Device(StandIn):
    """A call takes `takes_us`, and it says `says_us`, of replays `hot_us`; None: it cannot be captured. An order takes
    `lag_us` besides."""

    lag_us = 0.0

    def __init__(self, module: Any, kernel: Kernel, takes_us: float, says_us: float, hot_us: float | None) -> None:
        self.module, self.takes_us, self.says_us, self.hot_us = module, takes_us, says_us, hot_us
        super().__init__(kernel, in_slots=True, takes_ns=0)

    def _answer(self, kind: bytes, payload: bytes, file: int | None) -> bytes:
        if kind == channel.OPEN:
            nothing = codec.from_bytes(wire.OpenOrder, payload).target == self.module.NOTHING
            self.now_us, self.computes = (0.0, False) if nothing else (self.takes_us, True)
            return codec.to_bytes(wire.Opened(self.computes, False))
        if kind == channel.CALL:
            first, count, _ = host.CALLED.unpack(payload)
            self._run(first, count, self.now_us)
            return host.SIZE.pack(1)
        if kind == channel.COLD:
            first, count, _ = self.module.COLD_ORDER.unpack(payload)
            self._run(first, count, self.now_us + FLUSH_US)
            return codec.to_bytes(wire.ColdSamples([self.says_us] * count, [1.0] * count, [5.0] * count, 1))
        if kind == channel.HOT:
            if self.hot_us is None:
                return codec.to_bytes(wire.HotSamples([], [], 1, "what a call does is not in the graph", True))
            return codec.to_bytes(wire.HotSamples([self.hot_us] * 10, [1.0] * 10, 4, "", None))
        if kind == channel.REPLAY:
            count, cold = self.module.REPLAY_ORDER.unpack(payload)
            self._run(0, count, self.now_us + (FLUSH_US if cold else 0))
            return b""
        return super()._answer(kind, payload, file)

    def _run(self, first: int, count: int, each_us: float) -> None:
        for slot in range(first, first + count) if self.computes else ():
            self._call(slot * self.order.slot_bytes)
        CLOCK.now_ns += int((self.lag_us + count * each_us) * 1e3)


def measured(
    pretended: Any, says_us: float, hot_us: float | None, kernel: Kernel = right, lag_us: float = 0.0
) -> wire.TargetTiming:
    kernels = Device(pretended, kernel, CALL_US, says_us, hot_us)
    references = Device(pretended, kernel, 0.0, 2.0, None)
    (kernels if lag_us > 0 else references).lag_us = abs(lag_us)
    request = wire.TimeRequest(
        workloads=[WORKLOAD],
        seed=0,
        threads=1,
        device="cpu",
        rows=[["w", "kernel"]],
        order_seed=0,
        timing=dataclasses.replace(TIMING, target_s=0.05),
        expected_sha256={"w": [digest()]},
        limits={"w": LIMITS},
    )
    row = wire.TargetTiming("ok", workload="w", target="kernel")
    with ThreadPoolExecutor(1) as pool:
        launch = Measured(request, {"w": NumpyAttention(WORKLOAD)}, references.peer, kernels.peer, pool)
        launch.target_of = pretended.DeviceTarget
        assert launch.row(row) >= 0
        for stand_in in (kernels, references):
            stand_in.peer.connection.close()
            stand_in.thread.join()
        launch.judge()
    return row


def test_samples_that_agree_with_their_orders_are_believed(pretended: Any) -> None:
    row = measured(pretended, CALL_US, CALL_US)
    assert (row.status, row.message, row.correct, row.checked) == ("ok", "", True, 2)
    assert row.ordered_us is not None and row.hot_ordered_us is not None
    assert row.ordered_us > 0.8 * CALL_US and row.hot_ordered_us > 0.8 * CALL_US
    assert row.clock == "cuda_event" and len(row.samples_us) == len(row.sampled_s) == len(row.enqueue_us) >= 12
    assert len(row.hot_us) == 10 and row.hot_calls_per_sample == 4


@pytest.mark.parametrize(("says_us", "hot_us", "kind"), [(0.4, 1.0, "cold"), (1.2, 0.4, "hot")])
def test_samples_that_are_less_than_their_orders_take_are_not(
    pretended: Any, says_us: float, hot_us: float, kind: str
) -> None:
    row = measured(pretended, says_us * CALL_US, hot_us * CALL_US)
    assert row.status == "wrong" and f"inconsistent: a {kind} call takes" in row.message


def test_hot_samples_must_agree_with_what_more_calls_take_more(pretended: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else is in an order of that process."""
    monkeypatch.setattr(pretended, "LESS_ORDER_US", 1e6)
    row = measured(pretended, CALL_US, 0.4 * CALL_US)
    assert row.status == "wrong" and "inconsistent: a hot call takes" in row.message


@pytest.mark.parametrize("lag_us", [-0.3 * CALL_US, 0.3 * CALL_US])
def test_an_order_may_take_longer_in_one_process_than_in_another(
    pretended: Any, monkeypatch: pytest.MonkeyPatch, lag_us: float
) -> None:
    monkeypatch.setattr(pretended, "LESS_ORDER_US", 0.5 * CALL_US)
    row = measured(pretended, CALL_US, CALL_US, lag_us=lag_us)
    assert (row.status, row.message, row.correct) == ("ok", "", True)
    assert row.hot_ordered_us == pytest.approx(CALL_US, rel=0.2)


@pytest.mark.parametrize(("says_us", "unconfirmed"), [(0.01, True), (2.0, False)])
def test_a_call_that_cannot_be_captured_must_not_take_longer_among_others(
    pretended: Any, says_us: float, unconfirmed: bool
) -> None:
    row = measured(pretended, says_us * CALL_US, None)
    assert row.status == ("undecidable" if unconfirmed else "ok") and row.correct is True
    assert ("cannot be confirmed" in row.message) == unconfirmed


def test_an_answer_that_is_kept_is_wrong_in_a_timed_call(pretended: Any) -> None:
    row = measured(pretended, CALL_US, CALL_US, keeps(right))
    assert row.correct is False and row.message.startswith("its output in a timed call is not right")


@pytest.mark.parametrize("says_us", [0.0, -1.0, float("nan"), float("inf")])
def test_samples_that_are_no_times_are_refused(pretended: Any, says_us: float) -> None:
    row = measured(pretended, says_us, CALL_US)
    assert (row.status, row.message) == ("wrong", pretended.OTHER_SAMPLES)
