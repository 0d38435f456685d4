"""Times on a GPU: between two events of the device around a call, many enqueued before the first one runs.

What the host needs to enqueue a call differs between PyTorch versions, and must not be measured with it: the device
is kept busy with other work until all of the call is in its queue. Whether that held is asked of the device, for each
sample: one whose first event was over before its last was enqueued is left out, and more work is put in front of the
next ones.

A sample is cold: twice the size of the second-level cache is written before every call. Its moment, the host's own time
to enqueue the call, and the call's time come from the same call.
"""

from __future__ import annotations

import statistics
import time
from typing import Any, Callable, NamedTuple, Protocol

import torch

from . import sampling, wire

FLUSH_TIMES = 2  # bytes written at a time between calls, in sizes of the second-level cache
UNTOLD_CACHE_BYTES = 64 << 20  # PyTorch 2.1 does not tell: an H100 has 50 MiB, an H200 60
MOST_LEADS = 32  # pieces of other work before a call: a millisecond on an H200
MOST_AT_ONCE = 10  # calls enqueued before the host waits: far fewer than the thousand launches a queue holds
SPAN_S = 0.01  # of warm-up calls that have one median; a clock that rises does so within several
STABLE_SPANS, STABLE = 3, 0.01  # spans in a row whose medians differ by no more than this share
_clock, _seconds, _moment = time.perf_counter_ns, time.perf_counter, time.monotonic
# Written in C: unlike those of torch.cuda.Event, its methods cannot be replaced from Python.
_Event, _current_stream = torch._C._CudaEventBase, torch.cuda.current_stream


class Sample(NamedTuple):
    us: float  # of one call
    at_s: float  # when it ended, by CLOCK_MONOTONIC
    enqueue_us: float  # the host's time to enqueue it


class Takes(Protocol):
    """Whoever takes samples."""

    def take(self, count: int) -> list[Sample]:
        """Up to so many, at once."""

    def at_once(self, call_us: float) -> int:
        """How many of that length to take at once."""


class Sampler:
    """Samples of `call`, which stands for `calls` calls of the code under test, on the stream that is current now."""

    def __init__(self, call: Callable[[], Any], calls: int = 1) -> None:
        self.call = call
        self.calls = calls
        self.stream = _current_stream()
        self.leads = 1

    def open(self) -> None:
        """Keep the device busy: before the first of several samples."""

    def lead(self) -> None:
        """Keep the device busy: before every sample."""

    def take(self, count: int) -> list[Sample]:
        """Up to `count` samples, enqueued at once, in order: without those for which the host was too slow.

        A call that itself waits for the device is never in the queue ahead of it: with the most work in front of it
        its samples are taken as they are.
        """
        enqueued = []
        self.open()
        for _ in range(count):
            self.lead()
            start, stop = (_Event(enable_timing=True) for _ in range(2))
            start.record(self.stream)
            began = _clock()
            self.call()
            enqueue_ns = _clock() - began
            stop.record(self.stream)
            enqueued.append((start, stop, enqueue_ns, start.query()))
        stop.synchronize()
        now_s = _moment()
        kept = [entry for entry in enqueued if not entry[3]]
        if len(kept) < count:
            if self.leads < MOST_LEADS:
                self.leads *= 2
            elif not kept:
                kept = enqueued
        return [
            Sample(
                us=round(begin.elapsed_time(end) * 1000 / self.calls, 4),  # the device's clock tells less
                at_s=round(now_s - end.elapsed_time(stop) / 1000, 6),
                enqueue_us=round(enqueue_ns / 1000, 2),
            )
            for begin, end, enqueue_ns, _ in kept
        ]

    def at_once(self, call_us: float) -> int:
        return at_once(call_us)


class ColdSampler(Sampler):
    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(call)
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        cache_bytes = getattr(properties, "L2_cache_size", 0) or UNTOLD_CACHE_BYTES
        self.flush = torch.empty(FLUSH_TIMES * cache_bytes, dtype=torch.uint8, device="cuda")

    def lead(self) -> None:
        for _ in range(self.leads):
            self.flush.zero_()


class WarmSampler(Sampler):
    """What a call reads may still be in the cache: the calls before it keep the device busy."""

    def open(self) -> None:
        for _ in range(self.leads):
            self.call()


def at_once(call_us: float) -> int:
    """How many calls of that length to enqueue before the host waits: no more than a span."""
    return max(1, min(MOST_AT_ONCE, int(SPAN_S * 1e6 / max(call_us, 1e-3))))


def warm_up(sampler: Takes, timing: wire.SamplingRequest) -> tuple[int, float]:
    """Call until the times are stable, for `warmup_s` at most, but `warmup_calls` at least: (calls, median)."""
    calls, size = 0, 1
    medians: list[float] = []
    deadline = _seconds() + timing.warmup_s
    while True:
        span_end = _seconds() + SPAN_S
        times: list[float] = []
        while not times or _seconds() < span_end:
            times += [sample.us for sample in sampler.take(size)]
            calls += size
            if times:
                size = sampler.at_once(statistics.median(times))
        medians.append(statistics.median(times))
        if calls >= timing.warmup_calls and (is_stable(medians) or _seconds() >= deadline):
            return calls, medians[-1]


def is_stable(medians: list[float]) -> bool:
    last = medians[-STABLE_SPANS:]
    return len(last) == STABLE_SPANS and max(last) <= min(last) * (1 + STABLE)


def collect(sampler: Sampler, call_us: float, timing: wire.SamplingRequest) -> tuple[list[Sample], int]:
    """(samples by the stop rule, the nanoseconds that they took in all by the second clock)."""
    rule = sampling.StopRule(timing)
    samples: list[Sample] = []
    times: list[float] = []
    began = sampling._witness()
    while not rule.is_met(times):
        taken = sampler.take(at_once(call_us * sampler.calls))
        samples += taken
        times += [sample.us for sample in taken]
    return samples, sampling._witness() - began
