"""What a GPU's readings say of a launch's samples: pure functions of both.

A throttled GPU is slower, and no kernel changed. Samples that were taken meanwhile are left out, and counted. Which
reasons count is a choice, by what they say of the sample:

* Heat, power brakes and other slowdowns of the hardware come from the machine around the GPU: another launch of the
  same kernel meets them or not. These samples are left out.
* The power cap is the GPU's own limit under the very load that is measured, and it lags: the same large product runs
  at the full clock for some tens of milliseconds, and below it from then on (seen on an H200: 1635 MHz instead of 1980,
  and 10% slower). Samples under the cap at a lower clock stay, and are marked: which of them make the row's time, all
  launches of the row together say (`harness.stats.medians`).
* Idle, a clock that its owner set, and sync boost hold for whole runs. They stay.

The last reading before a sample, and the first after it, say how the GPU was meanwhile.
"""

from __future__ import annotations

import bisect
import functools
import math
import operator
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

from harness.gpu import Reading, Watch
from harness.schema.records import GpuWatch, LaunchRecord, TargetTiming
from harness.worker import protocol

# Bits of nvmlClocksEventReasons (nvml.h).
REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
THROTTLED = 0x8 | 0x20 | 0x40 | 0x80
POWER_CAP = 0x4
LOWER = 0.98  # of the launch's highest clock: under the cap, and seen in the time
IDLE = 0x1
THROTTLED_ALL = "the GPU was throttled during all {} samples"
NEAR_S = 0.05  # a reading this far from a window of samples still shows its clock

Window = tuple[float, float]


def names(reasons: int) -> list[str]:
    return [name for bit, name in REASONS.items() if reasons & bit]


def is_throttled(reading: Reading) -> bool:
    return bool(reading.reasons & THROTTLED)


def power_capped(readings: Sequence[Reading]) -> Callable[[Reading], bool]:
    """Whether a reading is under the power cap, at a clock below the highest of all readings."""
    highest = max((reading.sm_mhz for reading in readings if reading.sm_mhz is not None), default=0.0)
    return lambda reading: bool(reading.reasons & POWER_CAP) and (reading.sm_mhz or highest) < LOWER * highest


def spans(readings: Sequence[Reading], holds: Callable[[Reading], bool]) -> list[Window]:
    """When something held: from the reading before one that says so to the one after it."""
    windows = []
    for index, reading in enumerate(readings):
        if holds(reading):
            before_s = readings[index - 1].at_s if index else -math.inf
            after_s = readings[index + 1].at_s if index + 1 < len(readings) else math.inf
            windows.append((before_s, after_s))
    return windows


def judged(timing: TargetTiming, readings: Sequence[Reading]) -> TargetTiming:
    """Return the row without the samples that were throttled, those under the power cap marked, and its clock; no
    number where no sample is left."""
    slow, capped = spans(readings, is_throttled), spans(readings, power_capped(readings))
    cold_s = _spans_of(timing.samples_us, timing.sampled_s, timing.calls_per_sample)
    hot_s = _spans_of(timing.hot_us, timing.hot_sampled_s, timing.hot_calls_per_sample)
    cold, hot = ([i for i, span in enumerate(spans_s) if not _meets(span, slow)] for spans_s in (cold_s, hot_s))
    row = replace(
        timing,
        samples_us=[timing.samples_us[i] for i in cold],
        sampled_s=[timing.sampled_s[i] for i in cold],
        enqueue_us=[timing.enqueue_us[i] for i in cold],
        capped=[place for place, i in enumerate(cold) if _meets(cold_s[i], capped)],
        hot_us=[timing.hot_us[i] for i in hot],
        hot_sampled_s=[timing.hot_sampled_s[i] for i in hot],
        hot_capped=[place for place, i in enumerate(hot) if _meets(hot_s[i], capped)],
        throttled_samples=len(cold_s) - len(cold) + len(hot_s) - len(hot),
        sm_mhz=_clock(timing, readings),
    )
    if hot_s and not hot:
        row = replace(row, hot_message=THROTTLED_ALL.format(len(hot_s)))
    if cold_s and not cold:
        row = replace(row, status=protocol.NOT_RUN, message=THROTTLED_ALL.format(len(cold_s)))
    return row


def _spans_of(samples_us: Sequence[float], ended_s: Sequence[float], calls: int) -> list[Window]:
    """Return from when to when each sample was taken."""
    return [(end - sample * calls / 1e6, end) for sample, end in zip(samples_us, ended_s, strict=True)]


def _meets(span: Window, windows: Sequence[Window]) -> bool:
    return any(start <= span[1] and span[0] <= end for start, end in windows)


def window(timing: TargetTiming) -> Window | None:
    """From the first of a row's samples to its last."""
    moments = [*timing.sampled_s, *timing.hot_sampled_s]
    return (min(moments), max(moments)) if moments else None


def _clock(timing: TargetTiming, readings: Sequence[Reading]) -> float | None:
    at = window(timing)
    clocks = [(reading.at_s, reading.sm_mhz) for reading in readings if reading.sm_mhz is not None]
    if at is None or not clocks:
        return None
    inside = [mhz for moment, mhz in clocks if at[0] <= moment <= at[1]]
    if inside:
        return statistics.median(inside)
    moment, mhz = min(clocks, key=lambda clock: abs(clock[0] - at[0]))
    return mhz if abs(moment - at[0]) <= NEAR_S else None


def watched(uuid: str, readings: Sequence[Reading], windows: Sequence[Window], other_processes: int | None) -> GpuWatch:
    """Return a launch's `GpuWatch`, of the readings while calls were sampled (`windows`), and on both sides."""
    moments = [reading.at_s for reading in readings]
    sampled = set[int]()
    for start, end in windows:
        first, last = bisect.bisect_left(moments, start), bisect.bisect_right(moments, end)
        sampled.update(range(max(0, first - 1), min(len(readings), last + 1)))
    seen = [readings[index] for index in sorted(sampled)]
    slow, capped = is_throttled, power_capped(readings)
    reasons = functools.reduce(operator.or_, (reading.reasons for reading in seen), 0)
    known = {
        name: [value for reading in seen if (value := getattr(reading, name)) is not None]
        for name in ("sm_mhz", "memory_mhz", "power_w", "temperature_c")
    }
    return GpuWatch(
        uuid=uuid,
        readings=len(seen),
        sm_mhz=statistics.median(known["sm_mhz"]) if known["sm_mhz"] else None,
        memory_mhz=statistics.median(known["memory_mhz"]) if known["memory_mhz"] else None,
        power_w=max(known["power_w"], default=None),
        temperature_c=max(known["temperature_c"], default=None),
        throttled_share=sum(slow(r) or capped(r) for r in seen) / len(seen) if seen else 0.0,
        throttle_reasons=names(reasons & ~IDLE),
        other_processes=other_processes,
    )


def relative(timings: Sequence[TargetTiming]) -> list[TargetTiming]:
    """The rows with moments since the launch's first sample: the clock's own origin means nothing later."""
    windows = [at for at in map(window, timings) if at is not None]
    origin = min((start for start, _ in windows), default=0.0)
    return [
        replace(
            timing,
            sampled_s=[round(moment - origin, 4) for moment in timing.sampled_s],
            hot_sampled_s=[round(moment - origin, 4) for moment in timing.hot_sampled_s],
        )
        for timing in timings
    ]


def watched_launch(record: LaunchRecord, watch: Watch, uuid: str | None) -> LaunchRecord:
    """A GPU's launch with what was read of the GPU meanwhile, and without throttled samples."""
    timings = [judged(timing, watch.readings) for timing in record.timings]
    windows = [at for at in map(window, record.timings) if at is not None]
    gpu = watched(uuid, watch.readings, windows, watch.other_processes) if uuid and watch.readings else None
    left_out = sum(timing.throttled_samples for timing in timings)
    message = record.message
    if left_out and gpu is not None:
        samples = sum(len(timing.samples_us) + len(timing.hot_us) for timing in record.timings)
        reasons = ", ".join(gpu.throttle_reasons)
        message = f"{left_out} of {samples} samples left out: the GPU was throttled ({reasons})"
    return replace(record, timings=relative(timings), gpu=gpu, message=message)
