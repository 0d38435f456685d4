"""A profiler's events as `OperatorTime`s: what each operator and device function took in one call. Pure."""

from __future__ import annotations

import bisect
import collections
import statistics
from typing import Any, Sequence

CALL = "profiled call"  # the profiler's name of what we put around each call
REST = "outside operators"  # self time of that: the code under test, and what PyTorch does between operators
WAITING = ("cudaDeviceSynchronize", "Activity Buffer Request")  # ours and the profiler's
MOST_ROWS, NAME_CHARACTERS = 200, 300


def summed(events: Sequence[Any], on_host: Any) -> list[dict[str, Any]]:
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
        row(name, "operator", *(statistics.median(column) for column in zip(*entries)))
        for name, entries in by_name.items()
    ]
    on_device: dict[str, list[float]] = collections.defaultdict(list)
    for event in events:
        if event.device_type != on_host and event.name != CALL:
            on_device[event.name].append(event.time_range.elapsed_us())
    rows += [
        row(name, "device_function", len(times) / len(calls), sum(times) / len(calls))
        for name, times in on_device.items()
        if calls
    ]
    return sorted((r for r in rows if r["calls"]), key=lambda r: -r["self_us"])[:MOST_ROWS]


def row(name: str, kind: str, calls: float, self_us: float) -> dict[str, Any]:
    printable = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(name)[:NAME_CHARACTERS])
    return {"name": printable, "kind": kind, "calls": float(calls), "self_us": max(0.0, float(self_us))}
