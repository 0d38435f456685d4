"""What a target ran: operators and device functions, from a profiler's events, and lines of a Python file."""

from __future__ import annotations

import bisect
import collections
import contextlib
import linecache
import statistics
import sys
import threading
from types import FrameType
from typing import Any, Collection, Iterator, Sequence

from . import wire

MOST_LINES, TEXT_CHARACTERS = 2000, 160
CALL = "profiled call"  # the profiler's name of what we put around each call
REST = "outside operators"  # self time of that: the code under test, and what PyTorch does between operators
WAITING = ("cudaDeviceSynchronize", "Activity Buffer Request")  # ours and the profiler's
MOST_ROWS, NAME_CHARACTERS = 200, 300


def summed(events: Sequence[Any], on_host: Any) -> list[wire.OperatorTime]:
    """Rows, the longest first. `on_host`: the device type of host events.

    An operator belongs to the call in whose time it began. Of its self times the median over the calls is taken, since
    others on the machine disturb single calls, and PyTorch 2.1.0 rounds to microseconds and counts a few operators
    twice for it. A device function's time, which neither happens to, is the mean.
    """
    host = [event for event in events if event.device_type == on_host]
    calls = sorted((event.time_range.start, event.time_range.end) for event in host if event.name == CALL)
    starts = [start for start, _ in calls]
    by_name: dict[str, list[list[float]]] = collections.defaultdict(lambda: [[0, 0.0] for _ in calls])
    for event in host:
        number = bisect.bisect_right(starts, event.time_range.start) - 1
        if number >= 0 and event.time_range.start <= calls[number][1] and event.name not in WAITING:
            entry = by_name[REST if event.name == CALL else event.name][number]
            entry[0] += 1
            entry[1] += event.self_cpu_time_total
    rows = [
        _row(name, "operator", *(statistics.median(column) for column in zip(*entries)))
        for name, entries in by_name.items()
    ]
    on_device: dict[str, list[float]] = collections.defaultdict(list)
    for event in events:
        if event.device_type != on_host and event.name != CALL:
            on_device[event.name].append(event.time_range.elapsed_us())
    rows += [
        _row(name, "device_function", len(times) / len(calls), sum(times) / len(calls))
        for name, times in on_device.items()
        if calls
    ]
    return sorted((row for row in rows if row.calls), key=lambda row: -row.self_us)[:MOST_ROWS]


def _row(name: str, kind: wire.OperatorKind, calls: float, self_us: float) -> wire.OperatorTime:
    printable = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(name)[:NAME_CHARACTERS])
    return wire.OperatorTime(printable, kind, float(calls), max(0.0, float(self_us)))


@contextlib.contextmanager
def running(path: str) -> Iterator[set[int]]:
    """Gives a set that the numbers of `path`'s lines go into as they run, in this thread and those that it starts."""
    numbers: set[int] = set()
    tracing = [True]

    def of_a_call(frame: FrameType, _event: str, _value: Any) -> Any:
        return of_a_line if tracing and frame.f_code.co_filename == path else None

    def of_a_line(frame: FrameType, event: str, _value: Any) -> Any:
        if event == "line" and tracing:
            numbers.add(frame.f_lineno)
        return of_a_line if tracing else None

    before = sys.gettrace()
    threading.settrace(of_a_call)
    sys.settrace(of_a_call)
    try:
        yield numbers
    finally:
        tracing.clear()  # threads that go on are left alone
        sys.settrace(before)
        threading.settrace(None)


def lines_of(path: str, numbers: Collection[int]) -> list[wire.Line]:
    """These lines, each with its number and text; none where there are too many, or where Dynamo compiled something:
    what it compiled runs without its lines, and what it gave up runs with them."""
    if len(numbers) > MOST_LINES or _dynamo_compiled():
        return []
    return [wire.Line(number, linecache.getline(path, number).strip()[:TEXT_CHARACTERS]) for number in sorted(numbers)]


def _dynamo_compiled() -> bool:
    utils = sys.modules.get("torch._dynamo.utils")
    return bool(utils is not None and utils.counters["frames"])
