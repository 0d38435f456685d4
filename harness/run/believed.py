"""What is believed of a launch, part of which is the word of a process that had the code under test in it: its rows and
times must be possible."""

from __future__ import annotations

from harness.schema.records import LaunchRecord, TargetTiming
from harness.worker import protocol

SHORTEST_US = 1e-3  # of a call: no clock here resolves less


def implausible(record: LaunchRecord, asked: set[tuple[str, str]]) -> str:
    """'' where a launch gave the rows of the request, in no more time than passed by our clock; else what is wrong."""
    given = [(timing.workload, timing.target) for timing in record.timings]
    if len(given) != len(asked) or set(given) != asked:
        return "the launch gave other rows than it was asked for"
    timed = [timing for timing in record.timings if timing.status == protocol.OK]
    samples_us = [(sample, timing.calls_per_sample) for timing in timed for sample in timing.samples_us]
    samples_us += [(sample, timing.hot_calls_per_sample) for timing in timed for sample in timing.hot_us]
    if any(sample < SHORTEST_US or calls < 1 for sample, calls in samples_us):
        return "the launch claims calls of less than a nanosecond"
    claimed_s = sum(sample * calls for sample, calls in samples_us) / 1e6
    if claimed_s > record.duration_s:
        return f"the launch claims {claimed_s:.3g} s of measured calls, and took {record.duration_s:.3g} s in all"
    return _untimely(record, timed)


def _untimely(record: LaunchRecord, timed: list[TargetTiming]) -> str:
    """The same for the moments of a GPU's samples: one a sample, and all within the launch."""
    if record.device != "cuda":
        return ""
    for timing in record.timings:
        counts = [len(timing.sampled_s), len(timing.enqueue_us), len(timing.hot_sampled_s)]
        if counts != [len(timing.samples_us), len(timing.samples_us), len(timing.hot_us)]:
            return "the launch gives other numbers of samples and of their moments"
    moments = [moment for timing in timed for moment in (*timing.sampled_s, *timing.hot_sampled_s)]
    if moments and max(moments) - min(moments) > record.duration_s:
        return (
            f"the launch claims samples {max(moments) - min(moments):.3g} s apart, and took {record.duration_s:.3g} s"
        )
    return ""
