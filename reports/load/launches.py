"""What each launch measured of each target: records in, rows out. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import NamedTuple

from harness.schema.records import CallMemory, LaunchRecord, Outcome, Status, TargetTiming
from harness.stats.medians import COLD, HOT, time_us
from harness.worker.protocol import FailureKind, Fault
from reports.load.groups import grouped

# The message of launches from before they recorded whether calls escaped.
UNWRITTEN = "outputs unwritten: what a call does is not in the graph"


class Launch(NamedTuple):
    """One target in one launch. Times are None where there are none; `hot_message` says why there are no replays."""

    block: int
    status: Status
    message: str
    log_excerpt: str
    fault: Fault
    median_us: float | None
    samples: int
    correct: bool | None
    hot_us: float | None
    hot_samples: int
    hot_message: str
    enqueue_us: float | None
    sm_mhz: float | None
    throttled: int
    capped: int = 0
    has_other_bits: bool = False  # than the output that was validated
    memory: CallMemory | None = None
    memory_message: str = ""

    def ended(self) -> Outcome:
        """Return how it ended."""
        log = self.log_excerpt
        return Outcome(status=self.status, message=self.message, log_excerpt=log, fault=self.fault)

    def time_us(self, mode: str) -> float | None:
        """Of cold calls, or of a graph's replays."""
        return self.median_us if mode == COLD else self.hot_us


Key = tuple[str, str, str, str, str]  # environment, kernel, device, workload, target


def escapes(timing: TargetTiming) -> bool:
    """Whether the work of a call was put on another stream than the one that the call was given."""
    return timing.escaped is True or (timing.escaped is None and UNWRITTEN in timing.hot_message)


def group_launches(records: Iterable[LaunchRecord]) -> dict[Key, list[Launch]]:
    """In block order, as the records are."""
    return grouped(
        ((record.environment, record.kernel, record.device, timing.workload, timing.target), _launch(record, timing))
        for record in records
        for timing in record.timings
    )


def _launch(record: LaunchRecord, timing: TargetTiming) -> Launch:
    """A time that is not positive is no time: the clock is broken."""
    status, message, hot_message = timing.status, timing.message, timing.hot_message
    if status == "ok" and not (timing.samples_us and min(timing.samples_us) > 0):
        status, message = "broken", "the record holds no positive times"
    if timing.hot_us and min(timing.hot_us) <= 0:
        hot_message = "the record holds replays of no positive time"
    return Launch(
        block=record.index,
        status=status,
        message=message,
        log_excerpt=timing.log_excerpt,
        fault=timing.fault,
        median_us=time_us(timing, COLD),
        samples=len(timing.samples_us),
        correct=timing.correct,
        hot_us=time_us(timing, HOT),
        hot_samples=len(timing.hot_us),
        hot_message=hot_message,
        enqueue_us=median(timing.enqueue_us) if status == "ok" and timing.enqueue_us else None,
        sm_mhz=timing.sm_mhz,
        throttled=timing.throttled_samples,
        capped=len(timing.capped) + len(timing.hot_capped),
        has_other_bits=timing.failure is FailureKind.OTHER_BITS,
        memory=timing.memory,
        memory_message=timing.memory_message,
    )
