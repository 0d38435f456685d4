"""Cold samples and replays on a pretended device: a queue, a clock of its own, and a host that takes its time."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from harness.worker import wire

WRITE_S, HOST_S = 35e-6, 2e-6  # of one write larger than the cache; of enqueueing anything
TIMING = wire.SamplingRequest(
    warmup_s=0.2, warmup_calls=3, target_s=0.3, min_samples=10, max_samples=2000, relative_error=0.003
)


class Device:
    """Host and device time in seconds: work is enqueued by the host, and done in turn."""

    def __init__(self) -> None:
        self.host_s = 1000.0
        self.done_s = 1000.0
        self.stream = "the stream"

    def work(self, seconds: float, host_s: float = HOST_S) -> None:
        self.host_s += host_s
        self.done_s = max(self.done_s, self.host_s) + seconds

    def synchronize(self) -> None:
        self.host_s = max(self.host_s, self.done_s)

    def module(self) -> ModuleType:
        device = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self, stream: str = "the stream") -> None:
                assert stream == "the stream"
                device.work(0.0)
                self.at_s = device.done_s

            def query(self) -> bool:
                return self.at_s <= device.host_s

            def synchronize(self) -> None:
                device.host_s = max(device.host_s, self.at_s)

            def elapsed_time(self, other: Event) -> float:
                return (other.at_s - self.at_s) * 1000

        torch = ModuleType("torch")
        flush = SimpleNamespace(zero_=lambda: device.work(WRITE_S))
        properties = SimpleNamespace(L2_cache_size=1)
        vars(torch).update(
            uint8=0,
            int8=0,
            empty=lambda *_, **__: flush,
            _C=SimpleNamespace(_CudaEventBase=Event),
            cuda=SimpleNamespace(
                get_device_properties=lambda _: properties,
                current_device=lambda: 0,
                synchronize=self.synchronize,
                current_stream=lambda: self.stream,
                Event=Event,
                _sleep=lambda cycles: self.work(cycles / 1.98e9),
            ),
        )
        return torch


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.fixture
def events(device: Device, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from harness.worker import sampling

    monkeypatch.setitem(sys.modules, "torch", device.module())
    monkeypatch.delitem(sys.modules, "harness.worker.events", raising=False)
    module = importlib.import_module("harness.worker.events")
    monkeypatch.setattr(module, "_clock", lambda: int(device.host_s * 1e9))
    for name in ("_seconds", "_moment"):
        monkeypatch.setattr(module, name, lambda: device.host_s)
    monkeypatch.setattr(sampling, "_seconds", lambda: device.host_s)
    monkeypatch.setattr(sampling, "_witness", lambda: int(device.host_s * 1e9))
    yield module
    sys.modules.pop("harness.worker.events", None)
    import harness.worker

    if hasattr(harness.worker, "events"):
        del harness.worker.events


def sample(events: Any, call: Callable[[], object], timing: wire.SamplingRequest) -> list[Any]:
    """Warmed up, and as many as the rule wants."""
    sampler = events.ColdSampler(call)
    calls, call_us = events.warm_up(sampler, timing)
    assert calls >= timing.warmup_calls
    began = events._seconds()
    samples, witnessed_ns = events.collect(sampler, call_us, timing)
    assert witnessed_ns / 1e9 == pytest.approx(events._seconds() - began)
    return list(samples)


@pytest.mark.parametrize("host_us", [2, 50, 400, 900])
def test_a_calls_time_does_not_depend_on_how_long_the_host_takes(events: Any, device: Device, host_us: float) -> None:
    found = sample(events, lambda: device.work(20e-6, host_us / 1e6), TIMING)
    assert [sample.us for sample in found] == pytest.approx([20.0] * 10, abs=0.1)
    assert [sample.enqueue_us for sample in found] == pytest.approx([host_us] * 10, abs=0.1)
    moments = [sample.at_s for sample in found]
    assert moments == sorted(moments) and moments[-1] <= device.host_s + 1e-6 + 1e-6


def test_samples_that_the_host_was_late_for_are_left_out(events: Any, device: Device) -> None:
    calls = iter(range(10**9))

    def call() -> None:
        device.work(20e-6, 0.01 if next(calls) % 7 == 0 else HOST_S)  # now and then something else runs

    sampler = events.ColdSampler(call)
    found = [sample for _ in range(20) for sample in sampler.take(10)]
    assert 100 < len(found) < 200 and sampler.leads == events.MOST_LEADS
    assert [sample.us for sample in found] == pytest.approx([20.0] * len(found), abs=0.1)


def test_a_call_that_waits_for_the_device_has_samples(events: Any, device: Device) -> None:
    def call() -> None:
        device.work(20e-6)
        device.synchronize()

    found = sample(events, call, TIMING)
    assert len(found) >= 10 and min(sample.enqueue_us for sample in found) > 20


def test_warm_up_ends_when_times_are_stable_or_its_time_is_over(events: Any, device: Device) -> None:
    def falling(until_s: float) -> Callable[[], None]:
        """A clock that rises: calls are slower at first."""
        begun = device.host_s
        return lambda: device.work(20e-6 * max(1.0, 3 - 2 * (device.host_s - begun) / until_s))

    _, call_us = events.warm_up(events.ColdSampler(falling(0.08)), TIMING)
    assert call_us == pytest.approx(20, rel=0.01)
    begun = device.host_s
    events.warm_up(events.ColdSampler(falling(10.0)), replace(TIMING, warmup_s=0.03))
    assert device.host_s - begun < 0.06
    begun = device.host_s
    calls, _ = events.warm_up(events.ColdSampler(lambda: device.work(0.2)), replace(TIMING, warmup_calls=5))
    assert calls == 5 and device.host_s - begun < 1.1


@pytest.mark.parametrize(("call_us", "count"), [(0.0, 10), (20.0, 10), (2500.0, 4), (40_000.0, 1)])
def test_the_host_waits_after_a_hundredth_of_a_second(events: Any, call_us: float, count: int) -> None:
    assert events.at_once(call_us) == count


def test_sampling_stops_at_its_limits(events: Any, device: Device) -> None:
    times = iter(range(1, 10**9))

    def spread() -> None:
        device.work((next(times) * 7919 % 100 + 20) * 1e-6)

    found = sample(events, spread, replace(TIMING, relative_error=0.0, max_samples=40))
    assert len(found) == 40
    begun = device.host_s
    sample(events, spread, replace(TIMING, relative_error=0.0, max_samples=10**6))
    assert 0.3 < device.host_s - begun < 0.6
