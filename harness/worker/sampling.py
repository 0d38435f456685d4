"""When to measure and when to stop. A sample is the time of a call, in microseconds.

The clocks are bound when this module is imported, which is before the code under test is: what that puts in their
place is not called (and seen, see `integrity`). A clock changed below Python is found by a second one.

On the CPU a sample is a loop around the call. On a GPU there are two kinds: `events` has the cold ones, `graphs` the
hot ones. Beside the times stands how busy the machine was with other things, from /proc.
"""

from __future__ import annotations

import functools
import math
import os
import resource
import statistics
import time
from typing import TYPE_CHECKING, Any, Callable, Iterator, Sequence

from . import protocol, tools, wire

if TYPE_CHECKING:
    from .audit import Audit

SAMPLE_NS = 100000  # a sample's shortest length on the CPU: a thousand times the clock's own cost
CHECK_EVERY = 10  # samples between looks at the precision reached
IDLE_S, IDLE_LOOKS, QUIET = 0.05, 8, 0.05  # seconds, at most so many times, until so few processors are busy
FIRST_NUMBER = 300  # of a thread, once Linux has given the highest
BUSY = (0, 1, 2, 5, 6, 7)  # user, nice, system, irq, softirq, steal: the fields of /proc/stat's first line
PLAUSIBLE = 2  # how much longer or shorter than by the second clock samples may seem
_clock, _seconds, _sleep = time.perf_counter_ns, time.perf_counter, time.sleep
_witness = functools.partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC)
_usage = resource.getrusage
_process = functools.partial(time.clock_gettime_ns, time.CLOCK_PROCESS_CPUTIME_ID)  # all of its threads


class StopRule:
    """Enough samples: the median is known well enough, or the time is over."""

    def __init__(self, timing: wire.SamplingRequest) -> None:
        self.timing = timing
        self.deadline = _seconds() + timing.target_s
        self.looked_at = 0

    def is_met(self, samples: Sequence[float]) -> bool:
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


def sample(
    call: Callable[[], Any], timing: wire.SamplingRequest, row: wire.Timing, audit: Audit | None = None
) -> float:
    """Warm up, then sample on the CPU, into a row; gives the seconds that it took. Audited samples are single calls.
    The row's `status` and `message` say where the clock cannot be believed."""
    began = _seconds()
    row.warmup_calls, call_ns = warm_up(call, timing.warmup_s, timing.warmup_calls)
    calls = max(1, math.ceil(SAMPLE_NS / max(1.0, call_ns)))
    keep = audit.keep if audit else _drop
    measure, measure_one = _sampler(call, calls, keep), _sampler(call, 1, keep)
    samples: list[float] = []
    shares: list[float] = []
    total_ns = made = 0
    rule, meter = StopRule(timing), Processors()
    for audited in turns(rule, samples, audit):
        call_us, witnessed_ns = (measure_one if audited else measure)()
        made += 1 if audited else calls
        if audited:
            audited.ended(call_us)
            continue
        total_ns += witnessed_ns
        shares.append(call_us * calls * 1000 / max(1, witnessed_ns))
        samples.append(call_us)
    row.clock, row.calls_per_sample, row.samples_us = "perf_counter_ns", calls, samples
    spent_s = _seconds() - began
    row.switches_per_ms, row.threads_started = meter.switches_per_ms(), meter.threads_started(made)
    row.busy_processors = meter.read()
    # By the middle one, as the time itself: a sample that was interrupted between the two clocks accuses nobody.
    doubt(row, statistics.median(shares) * total_ns, total_ns, "cpu")
    return spent_s


def turns(rule: StopRule, samples: Sequence[float], audit: Audit | None) -> Iterator[Audit | None]:
    """Before each sample, until there are enough and the audit has all of its own: the audit, where the next is its."""
    wanting = True
    while True:
        wanting = wanting and not rule.is_met(samples)
        audited = audit is not None and audit.begins(wanting)
        if not wanting and not audited:
            return
        yield audit if audited else None
        if audit is not None and not audited:
            audit.look()


class Processors:
    """How many processors this process, with all of its threads, keeps busy between its making and `read`, and how
    often these threads leave one: those that ended since are counted. And how many were started meanwhile."""

    def __init__(self) -> None:
        self.left, self.newest = _switches(), _newest()
        self.wall_ns, self.own_ns = _witness(), _process()

    def read(self) -> float:
        return round((_process() - self.own_ns) / max(1, _witness() - self.wall_ns), 3)

    def switches_per_ms(self) -> float:
        return round((_switches() - self.left) / max(1, _witness() - self.wall_ns) * 1e6, 3)

    def threads_started(self, calls: int) -> float | None:
        """In each of so many calls, at least. Other processes' count too: a container sees its own, a virtual
        environment all of the machine's. None where the system does not tell."""
        newest = _newest()
        if newest is None or self.newest is None:
            return None
        started = newest - self.newest
        if started < 0:  # its numbers began anew
            started += (_last_word("/proc/sys/kernel/pid_max") or 0) - FIRST_NUMBER
        return round(max(0, started) / max(1, calls), 3)


def _newest() -> int | None:
    """The number of the thread or process that was started last (proc(5): they go up by one)."""
    return _last_word("/proc/loadavg")


def _last_word(path: str) -> int | None:
    words = tools.read_text(path).split()
    return int(words[-1]) if words else None


def _switches() -> int:
    usage = _usage(resource.RUSAGE_SELF)
    return usage.ru_nvcsw + usage.ru_nivcsw


def idle_processors() -> float:
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


def doubt(row: wire.Timing, sampled_ns: float, witnessed_ns: float, device: str) -> None:
    """Mark a row `wrong` whose samples took `sampled_ns` in all where that much did not pass."""
    fault = implausible(sampled_ns, witnessed_ns, device)
    if fault:
        row.status, row.message = protocol.WRONG, fault


def implausible(sampled_ns: float, witnessed_ns: float, device: str) -> str:
    """What is wrong where samples do not add up to the time that passed. On a GPU other work stands between them."""
    low = 0 if device == "cuda" else witnessed_ns / PLAUSIBLE
    if low <= sampled_ns <= witnessed_ns * PLAUSIBLE:
        return ""
    return f"its samples add up to {sampled_ns / 1e6:.3g} ms, but took {witnessed_ns / 1e6:.3g} ms by another clock"


def warm_up(call: Callable[[], Any], warmup_s: float, at_least: int) -> tuple[int, float]:
    """Calls until `warmup_s` passed, and `at_least` that many: (their number, the fastest's nanoseconds)."""
    fastest, calls = math.inf, 0
    deadline = _seconds() + warmup_s
    while calls < at_least or _seconds() < deadline:
        start = _clock()
        call()
        fastest = min(fastest, _clock() - start)
        calls += 1
    return calls, fastest


def median_error(samples: Sequence[float]) -> float:
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


def _drop(_output: Any) -> None:
    pass


def _sampler(call: Callable[[], Any], calls: int, keep: Callable[[Any], None]) -> Callable[[], tuple[float, int]]:
    """A function that gives the time of a call, and what all of them took by the second clock. `keep` gets the last
    one's output."""
    clock, witness, repeat = _clock, _witness, range(calls - 1)

    def measure() -> tuple[float, int]:
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


def read_processors() -> list[int] | None:
    """Ticks of all processors by kind, or None."""
    fields = tools.read_text("/proc/stat").partition("\n")[0].split()[1:9]
    return [int(field) for field in fields] if len(fields) == 8 else None


class LoadMeter:
    """Watches from its making until `read`."""

    def __init__(self) -> None:
        self.processors = read_processors()
        self.own = sum(os.times()[:4])

    def read(self) -> wire.Load:
        now = read_processors()
        share, steal = None, None
        if self.processors and now:
            spent = [after - before for before, after in zip(self.processors, now)]
            total = sum(spent)
            if total > 0:
                own = (sum(os.times()[:4]) - self.own) * os.sysconf("SC_CLK_TCK")
                others = sum(spent[kind] for kind in BUSY) - own
                share = min(1.0, max(0.0, others / total))
                steal = spent[7] / total
        return wire.Load(os.getloadavg()[0], share, cpu_mhz(), steal)


def cpu_mhz() -> float | None:
    """Mean clock of all processors as the kernel last saw it, or None."""
    lines = tools.read_text("/proc/cpuinfo").splitlines()
    clocks = [float(line.split(":")[1]) for line in lines if line.startswith("cpu MHz")]
    return sum(clocks) / len(clocks) if clocks else None
