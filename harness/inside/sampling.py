"""When to measure and when to stop. A sample is the time of a call, in microseconds.

The clocks are bound when this module is imported, which is before the code under test is: what that puts in their
place is not called (and seen, see `integrity`). A clock changed below Python is found by a second one.

On the CPU a sample is a loop around the call. On a GPU there are two kinds: `events` has the cold ones, `graphs` the
hot ones.
"""

import functools
import math
import time

from . import protocol

SAMPLE_NS = 100000  # a sample's shortest length on the CPU: a thousand times the clock's own cost
CHECK_EVERY = 10  # samples between looks at the precision reached
PLAUSIBLE = 2  # how much longer or shorter than by the second clock samples may seem
_clock, _seconds = time.perf_counter_ns, time.perf_counter
_witness = functools.partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC)


class StopRule:
    """Enough samples: the median is known well enough, or the time is over.

    `timing`: target_s, min_samples, max_samples, relative_error.
    """

    def __init__(self, timing):
        self.timing = timing
        self.deadline = _seconds() + timing["target_s"]
        self.looked_at = 0

    def is_met(self, samples):
        if len(samples) >= self.timing["max_samples"]:
            return True
        if len(samples) < self.timing["min_samples"]:
            return False
        if _seconds() >= self.deadline:
            return True
        if len(samples) - self.looked_at < CHECK_EVERY:
            return False
        self.looked_at = len(samples)
        return median_error(samples) <= self.timing["relative_error"]


def sample(call, timing):
    """Warm up, then sample on the CPU.

    `timing`: as `StopRule`'s, and warmup_s, warmup_calls. Returns fields of `Timing`, and sampling_s; `status` and
    `message` among them where the clock cannot be believed.
    """
    began = _seconds()
    warmup_calls, call_ns = warm_up(call, timing["warmup_s"], timing["warmup_calls"])
    calls = max(1, math.ceil(SAMPLE_NS / max(1.0, call_ns)))
    measure = _sampler(call, calls)
    samples, witnessed_ns = [], 0
    rule = StopRule(timing)
    while not rule.is_met(samples):
        before = _witness()
        samples.append(measure())
        witnessed_ns += _witness() - before
    fields = {"clock": "perf_counter_ns", "calls_per_sample": calls, "warmup_calls": warmup_calls}
    fields.update(samples_us=samples, sampling_s=_seconds() - began)
    return believed(fields, sum(samples) * calls * 1000, witnessed_ns, "cpu")


def believed(fields, sampled_ns, witnessed_ns, device):
    """The fields of samples that took `sampled_ns` in all, `wrong` where that much did not pass."""
    doubt = implausible(sampled_ns, witnessed_ns, device)
    return {**fields, "status": protocol.WRONG, "message": doubt} if doubt else fields


def implausible(sampled_ns, witnessed_ns, device):
    """What is wrong where samples do not add up to the time that passed. On a GPU other work stands between them."""
    low = 0 if device == "cuda" else witnessed_ns / PLAUSIBLE
    if low <= sampled_ns <= witnessed_ns * PLAUSIBLE:
        return ""
    return f"its samples add up to {sampled_ns / 1e6:.3g} ms, but took {witnessed_ns / 1e6:.3g} ms by another clock"


def warm_up(call, warmup_s, at_least):
    """Calls until `warmup_s` passed, and `at_least` that many: (their number, the fastest's nanoseconds)."""
    fastest, calls = math.inf, 0
    deadline = _seconds() + warmup_s
    while calls < at_least or _seconds() < deadline:
        start = _clock()
        call()
        fastest = min(fastest, _clock() - start)
        calls += 1
    return calls, fastest


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


def _sampler(call, calls):
    clock, repeat = _clock, range(calls)

    def measure():
        start = clock()
        for _ in repeat:
            call()
        return (clock() - start) / calls / 1000

    return measure
