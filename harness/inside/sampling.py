"""When to measure and when to stop. A sample is the time of a call, in microseconds.

The clocks are bound when this module is imported, which is before the code under test is: what that puts in their
place is not called (and seen, see `integrity`). A clock changed below Python is found by a second one.
"""

import functools
import math
import time

from . import protocol

SAMPLE_NS = 100000  # a sample's shortest length on the CPU: a thousand times the clock's own cost
CHECK_EVERY = 10  # samples between looks at the precision reached
FLUSH_TIMES = 2  # bytes written at a time between calls, in sizes of the second-level cache
MOST_WRITES = 32  # before a call: more than a millisecond on an H200
PLAUSIBLE = 2  # how much longer or shorter than by the second clock samples may seem
_clock, _seconds = time.perf_counter_ns, time.perf_counter
_witness = functools.partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC)


def sample(call, device, timing):
    """Warm up, then sample until the median is known well enough or the time is over.

    `timing`: warmup_s, warmup_calls, target_s, min_samples, max_samples, relative_error. Returns fields of
    `Timing`; `status` and `message` among them where the clock cannot be believed.
    """
    warmup_calls, call_ns = warm_up(call, device, timing["warmup_s"], timing["warmup_calls"])
    if device == "cuda":
        calls, clock, measure = 1, "cuda_event", _cuda_sampler(call)
    else:
        calls, clock = max(1, math.ceil(SAMPLE_NS / max(1.0, call_ns))), "perf_counter_ns"
        measure = _cpu_sampler(call, calls)
    samples, witnessed_ns = [], 0
    deadline = _seconds() + timing["target_s"]
    while len(samples) < timing["max_samples"]:
        before = _witness()
        samples.append(measure())
        witnessed_ns += _witness() - before
        if len(samples) < timing["min_samples"]:
            continue
        if _seconds() >= deadline:
            break
        if len(samples) % CHECK_EVERY == 0 and median_error(samples) <= timing["relative_error"]:
            break
    fields = {"clock": clock, "calls_per_sample": calls, "warmup_calls": warmup_calls, "samples_us": samples}
    doubt = implausible(sum(samples) * calls * 1000, witnessed_ns, device)
    return {**fields, "status": protocol.WRONG, "message": doubt} if doubt else fields


def implausible(sampled_ns, witnessed_ns, device):
    """What is wrong where samples do not add up to the time that passed. On a GPU other work stands between them."""
    low = 0 if device == "cuda" else witnessed_ns / PLAUSIBLE
    if low <= sampled_ns <= witnessed_ns * PLAUSIBLE:
        return ""
    return f"its samples add up to {sampled_ns / 1e6:.3g} ms, but took {witnessed_ns / 1e6:.3g} ms by another clock"


def warm_up(call, device, warmup_s, at_least):
    """Calls until `warmup_s` passed, and `at_least` that many: (their number, the fastest's nanoseconds)."""
    synchronise = _synchroniser(device)
    fastest, calls = math.inf, 0
    deadline = _seconds() + warmup_s
    while calls < at_least or _seconds() < deadline:
        start = _clock()
        call()
        synchronise()
        fastest = min(fastest, _clock() - start)
        calls += 1
    return calls, fastest


def _synchroniser(device):
    if device != "cuda":
        return lambda: None
    import torch

    return torch.cuda.synchronize


def median_error(samples):
    """Relative standard error of the median, from order statistics: no assumption on the distribution.

    The median's rank among n samples has a standard deviation of sqrt(n) / 2.
    """
    ordered = sorted(samples)
    count = len(ordered)
    middle, spread = (count - 1) / 2, math.sqrt(count) / 2
    low = ordered[max(0, math.floor(middle - spread))]
    high = ordered[min(count - 1, math.ceil(middle + spread))]
    median = ordered[count // 2]
    return (high - low) / 2 / median if median > 0 else math.inf


def _cpu_sampler(call, calls):
    clock, repeat = _clock, range(calls)

    def measure():
        start = clock()
        for _ in repeat:
            call()
        return (clock() - start) / calls / 1000

    return measure


def _cuda_sampler(call):
    """Events around single calls, each after writes larger than the second-level cache.

    The writes empty the cache, and keep the device busy while the host enqueues the call: what the host needs for
    that, which differs by PyTorch version, must not be measured. Where the device was at the call before the host
    had enqueued all of it, the sample is taken again, after twice as many writes.
    """
    import torch

    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    size = FLUSH_TIMES * (getattr(properties, "L2_cache_size", 0) or 64 << 20)
    flush = torch.empty(max(size, 64 << 20), dtype=torch.uint8, device="cuda")
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    writes = 1

    def measure():
        nonlocal writes
        while True:
            for _ in range(writes):
                flush.zero_()
            start.record()
            call()
            stop.record()
            device_waited = start.query()
            stop.synchronize()
            if not device_waited or writes >= MOST_WRITES:  # a call that waits for the device cannot be helped
                return start.elapsed_time(stop) * 1000
            writes *= 2

    return measure
