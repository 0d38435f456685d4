"""When to measure and when to stop. A sample is the time of a call, in microseconds.

The clocks are bound when this module is imported, which is before the code under test is: what that puts in their
place is not called (and seen, see `integrity`). A clock changed below Python is found by a second one.

On the CPU a sample is a loop around the call. On a GPU there are two kinds: `events` has the cold ones, `graphs` the
hot ones.
"""

import functools
import math
import resource
import statistics
import time

from . import protocol

SAMPLE_NS = 100000  # a sample's shortest length on the CPU: a thousand times the clock's own cost
CHECK_EVERY = 10  # samples between looks at the precision reached
IDLE_S, IDLE_LOOKS, QUIET = 0.05, 8, 0.05  # seconds, at most so many times, until so few processors are busy
FIRST_NUMBER = 300  # of a thread, once Linux has given the highest
PLAUSIBLE = 2  # how much longer or shorter than by the second clock samples may seem
_clock, _seconds, _sleep = time.perf_counter_ns, time.perf_counter, time.sleep
_witness = functools.partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC)
_usage = resource.getrusage
_process = functools.partial(time.clock_gettime_ns, time.CLOCK_PROCESS_CPUTIME_ID)  # all of its threads


class StopRule:
    """Enough samples: the median is known well enough, or the time is over.

    `timing`: target_s, min_samples, max_samples, relative_error.
    """

    def __init__(self, timing):
        self.timing = timing
        self.deadline = _seconds() + timing.target_s
        self.looked_at = 0

    def is_met(self, samples):
        if len(samples) >= self.timing.max_samples:
            return True
        if len(samples) < self.timing.min_samples:
            return False
        if _seconds() >= self.deadline:
            return True
        if len(samples) - self.looked_at < CHECK_EVERY:
            return False
        self.looked_at = len(samples)
        return median_error(samples) <= self.timing.relative_error


def sample(call, timing, audit=None):
    """Warm up, then sample on the CPU.

    `timing`: as `StopRule`'s, and warmup_s, warmup_calls. `audit`: see `audit.Audit`; its samples are single calls.
    Returns fields of `Timing`, and sampling_s; `status` and `message` among them where the clock cannot be believed.
    """
    began = _seconds()
    warmup_calls, call_ns = warm_up(call, timing.warmup_s, timing.warmup_calls)
    calls = max(1, math.ceil(SAMPLE_NS / max(1.0, call_ns)))
    keep = audit.keep if audit else _drop
    measure, measure_one = _sampler(call, calls, keep), _sampler(call, 1, keep)
    samples, total_ns, shares, made = [], 0, [], 0
    rule, sampling = StopRule(timing), True
    meter = Processors()
    while True:
        sampling = sampling and not rule.is_met(samples)
        audited = audit is not None and audit.begins(sampling)
        if not sampling and not audited:
            break
        call_us, witnessed_ns = (measure_one if audited else measure)()
        made += 1 if audited else calls
        if audited:
            audit.ended(call_us)
            continue
        total_ns += witnessed_ns
        shares.append(call_us * calls * 1000 / max(1, witnessed_ns))
        samples.append(call_us)
        if audit is not None:
            audit.look()
    fields = {"clock": "perf_counter_ns", "calls_per_sample": calls, "warmup_calls": warmup_calls}
    fields.update(samples_us=samples, sampling_s=_seconds() - began)
    fields.update(switches_per_ms=meter.switches_per_ms(), threads_started=meter.threads_started(made))
    fields.update(busy_processors=meter.read())
    # By the middle one, as the time itself: a sample that was interrupted between the two clocks accuses nobody.
    return believed(fields, statistics.median(shares) * total_ns, total_ns, "cpu")


class Processors:
    """How many processors this process, with all of its threads, keeps busy between its making and `read`, and how
    often these threads leave one: those that ended since are counted. And how many were started meanwhile."""

    def __init__(self):
        self.left, self.newest = _switches(), _newest()
        self.wall_ns, self.own_ns = _witness(), _process()

    def read(self):
        return round((_process() - self.own_ns) / max(1, _witness() - self.wall_ns), 3)

    def switches_per_ms(self):
        return round((_switches() - self.left) / max(1, _witness() - self.wall_ns) * 1e6, 3)

    def threads_started(self, calls):
        """In each of so many calls, at least. Other processes' count too: a container sees its own, a virtual
        environment all of the machine's. None where the system does not tell."""
        newest = _newest()
        if newest is None or self.newest is None:
            return None
        started = newest - self.newest
        if started < 0:  # its numbers began anew
            started += (_last_word("/proc/sys/kernel/pid_max") or 0) - FIRST_NUMBER
        return round(max(0, started) / max(1, calls), 3)


def _newest():
    """The number of the thread or process that was started last (proc(5): they go up by one)."""
    return _last_word("/proc/loadavg")


def _last_word(path):
    try:
        with open(path) as file:
            return int(file.read().split()[-1])
    except (OSError, ValueError, IndexError):
        return None


def _switches():
    usage = _usage(resource.RUSAGE_SELF)
    return usage.ru_nvcsw + usage.ru_nivcsw


def idle_processors():
    """How many processors this process keeps busy while it calls nothing. Pools of threads wait busily for a moment
    before they sleep: it is looked at until it is quiet, and else the quietest moment counts."""
    least = math.inf
    for _ in range(IDLE_LOOKS):
        meter = Processors()
        _sleep(IDLE_S)
        least = min(least, meter.read())
        if least < QUIET:
            break
    return least


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


def _drop(_output):
    pass


def _sampler(call, calls, keep):
    """A function that gives the time of a call, and what all of them took by the second clock. `keep` gets the last
    one's output."""
    clock, witness, repeat = _clock, _witness, range(calls - 1)

    def measure():
        before = witness()
        start = clock()
        for _ in repeat:
            call()
        output = call()
        call_us = (clock() - start) / calls / 1000
        witnessed_ns = witness() - before
        keep(output)
        return call_us, witnessed_ns

    return measure
