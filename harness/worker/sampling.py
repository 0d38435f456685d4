"""When to measure and when to stop. A sample is the time of a call, in microseconds.

The clocks are bound when this module is imported, which is before the code under test is: what that puts in their
place is not called.

On the CPU `target` takes the samples. On a GPU there are two kinds: `events` has the cold ones, `graphs` the hot ones.
Beside the times stands how busy the machine was with other things, from /proc.
"""

from __future__ import annotations

import functools
import math
import os
import resource
import time
from typing import Any, Callable, Sequence

from . import tools, wire

CHECK_EVERY = 10  # samples between looks at the precision reached
IDLE_S, IDLE_LOOKS, QUIET = 0.05, 8, 0.05  # seconds, at most so many times, until so few processors are busy
FIRST_NUMBER = 300  # of a thread, once Linux has given the highest
BUSY = (0, 1, 2, 5, 6, 7)  # user, nice, system, irq, softirq, steal: the fields of /proc/stat's first line
PLAUSIBLE = 2  # how much longer than by the second clock samples may seem
clock_ns, _seconds, _sleep = time.perf_counter_ns, time.perf_counter, time.sleep
_witness = functools.partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC)
_usage = resource.getrusage
process_ns = functools.partial(time.clock_gettime_ns, time.CLOCK_PROCESS_CPUTIME_ID)  # all of its threads


class StopRule:
    """Enough samples: the median is known well enough, or the time is over."""

    def __init__(self, timing: wire.SamplingRequest) -> None:
        self.timing = timing
        self.deadline = _seconds() + timing.target_s
        self.paused: float | None = None
        self.looked_at = 0

    def pause(self) -> None:
        """Do not count time as spent on sampling, until `resume`."""
        self.paused = _seconds()

    def resume(self) -> None:
        """Count time again."""
        if self.paused is not None:
            self.deadline += _seconds() - self.paused
            self.paused = None

    def is_met(self, samples: Sequence[float]) -> bool:
        if len(samples) >= self.timing.max_samples:
            return True
        if len(samples) < self.timing.min_samples:
            return False
        if (_seconds() if self.paused is None else self.paused) >= self.deadline:
            return True
        if len(samples) - self.looked_at < CHECK_EVERY:
            return False
        self.looked_at = len(samples)
        return median_error(samples) <= self.timing.relative_error


class Usage:
    """What this process, with all of its threads, used since its making: those that ended since are counted too."""

    def __init__(self) -> None:
        self.newest = newest_process()
        self.wall_ns, self.own_ns = clock_ns(), process_ns()

    def processors(self) -> float:
        """How many it kept busy."""
        return round((process_ns() - self.own_ns) / max(1, clock_ns() - self.wall_ns), 3)

    def threads_started(self, calls: int) -> float | None:
        """In each of so many calls, at least. Other processes' count too: a container sees its own, a virtual
        environment all of the machine's. None where the system does not tell."""
        newest = newest_process()
        if newest is None or self.newest is None:
            return None
        started = newest - self.newest
        if started < 0:  # its numbers began anew
            started += (_last_word("/proc/sys/kernel/pid_max") or 0) - FIRST_NUMBER
        return round(max(0, started) / max(1, calls), 3)


def newest_process() -> int | None:
    """The number of the thread or process that was started last (proc(5): they go up by one)."""
    return _last_word("/proc/loadavg")


def _last_word(path: str) -> int | None:
    words = tools.read_text(path).split()
    return int(words[-1]) if words else None


def switches() -> int:
    """How often a thread of this process left its processor."""
    usage = _usage(resource.RUSAGE_SELF)
    return usage.ru_nvcsw + usage.ru_nivcsw


def idle_processors() -> float:
    """How many processors this process keeps busy while it calls nothing. Pools of threads wait busily for a moment
    before they sleep: it is looked at until it is quiet, and else the quietest moment counts."""
    least = math.inf
    for _ in range(IDLE_LOOKS):
        usage = Usage()
        _sleep(IDLE_S)
        least = min(least, usage.processors())
        if least < QUIET:
            break
    return least


def implausible(sampled_ns: float, witnessed_ns: float) -> str:
    """What is wrong where a GPU's samples add up to more than the time that passed. Other work stands between them."""
    if sampled_ns <= witnessed_ns * PLAUSIBLE:
        return ""
    return f"its samples add up to {sampled_ns / 1e6:.3g} ms, but took {witnessed_ns / 1e6:.3g} ms by another clock"


def warm_up(call: Callable[[], Any], warmup_s: float, at_least: int) -> tuple[int, float]:
    """Calls until `warmup_s` passed, and `at_least` that many: (their number, the fastest's nanoseconds)."""
    fastest, calls = math.inf, 0
    deadline = _seconds() + warmup_s
    while calls < at_least or _seconds() < deadline:
        start = clock_ns()
        call()
        fastest = min(fastest, clock_ns() - start)
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


def read_processors() -> list[int] | None:
    """Ticks of all processors by kind, or None."""
    fields = tools.read_text("/proc/stat").partition("\n")[0].split()[1:9]
    return [int(field) for field in fields] if len(fields) == 8 else None


class LoadMeter:
    """Watches from its making until `read`."""

    def __init__(self) -> None:
        self.processors = read_processors()
        self.own = sum(os.times()[:4])

    def read(self, helpers_s: float = 0.0) -> wire.Load:
        """`helpers_s`: processor time of this launch's other processes."""
        now = read_processors()
        share, steal = None, None
        if self.processors and now:
            spent = [after - before for before, after in zip(self.processors, now)]
            total = sum(spent)
            if total > 0:
                own = (sum(os.times()[:4]) - self.own + helpers_s) * os.sysconf("SC_CLK_TCK")
                others = sum(spent[kind] for kind in BUSY) - own
                share = min(1.0, max(0.0, others / total))
                steal = spent[7] / total
        return wire.Load(os.getloadavg()[0], share, cpu_mhz(), steal)


def cpu_mhz() -> float | None:
    """Mean clock of all processors as the kernel last saw it, or None."""
    lines = tools.read_text("/proc/cpuinfo").splitlines()
    clocks = [float(line.split(":")[1]) for line in lines if line.startswith("cpu MHz")]
    return sum(clocks) / len(clocks) if clocks else None
