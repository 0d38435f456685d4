"""Latency of one target in one environment, and its verdict against the same in the baseline. Pure.

References are timed in every kernel's launch. Rows of one launch are not independent, so pooling them would count one
launch several times: a reference's times come from the first kernel, in the plan's order, whose launches have
them on both sides, and the row names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from statistics import median
from typing import Any

import numpy as np
from scipy import stats

from harness.schema.records import LaunchRecord, Outcome
from harness.schema.run_records import Cell
from harness.worker import protocol
from reports import model
from reports.compare.correctness import FAILED
from reports.compare.decisions import explain_not_comparable
from reports.compare.gpus import ceiling_of, rates
from reports.compare.properties import differs_though_right, is_wrong
from reports.load.evidence import Evidence, unblamed
from reports.load.launches import Launch
from reports.model import CorrectnessSide, Latency, LatencySide, OnGpu
from reports.sentences import sentence

STOPPED = FAILED | {"wrong"}


def modes(device: str) -> tuple[str, ...]:
    return (model.COLD, model.HOT) if device == "cuda" else (model.COLD,)


@lru_cache(maxsize=256)
def _median_rank(count: int, confidence: float) -> int:
    """k for the interval from the k-th smallest to the k-th largest value; 0 where none is wide enough."""
    below = stats.binom.cdf(np.arange(count), count, 0.5)
    return int(np.searchsorted(below, (1 - confidence) / 2, side="right"))


def median_interval(values: Sequence[float], confidence: float) -> tuple[float, float] | tuple[None, None]:
    """Interval of the median from order statistics, exact for any distribution (David and Nagaraja, "Order
    Statistics", section 7.1): None where too few values support it, at 95% fewer than six."""
    rank = _median_rank(len(values), confidence)
    if not rank:
        return None, None
    ordered = sorted(values)
    return ordered[rank - 1], ordered[-rank]


def side(
    evidence: Evidence, cell: Cell, target: str, mode: str = model.COLD, validated: CorrectnessSide | None = None
) -> LatencySide:
    """`target` is `kernel` or a reference's name; the cell's kernel is the one in whose launches it was timed. Where
    validation saw that it only does not repeat, other bits in a launch are no news."""
    info = evidence.workload(cell.workload)
    if mode == model.BACKWARD:
        target, mode, info = target + protocol.BACKWARD, model.COLD, None  # operations are known of whole steps
    repeats = validated is None or not differs_though_right(validated)
    found, launched = evidence.timed(cell, target), evidence.launches_of(cell)
    timed = [(row, time_us) for row in found if (time_us := row.time_us(mode)) is not None]
    shared: dict[str, Any] = {
        "environment": cell.environment,
        "measured_with": None if target == protocol.KERNEL else cell.kernel,
        "failed_launches": len(found) - len(timed) + sum(not record.timings for record in launched),
        "gpu": _on_gpu(found) if cell.device == "cuda" else None,
    }
    if not timed:
        return LatencySide(**shared, **vars(_without(evidence, found, launched, cell, mode)))
    wrong = [row for row, _ in timed if row.correct is False and (repeats or not row.has_other_bits)]
    medians = [time_us for _, time_us in timed]
    middle = median(medians)
    low_us, high_us = median_interval(medians, evidence.confidence)
    return LatencySide(
        status="ok",
        message=next((row.message for row in wrong), ""),
        record=evidence.launches_pointer(cell.environment, cell.kernel, cell.device),
        blocks=[row.block for row, _ in timed],
        medians_us=medians,
        median_us=middle,
        low_us=low_us,
        high_us=high_us,
        samples=sum(row.samples if mode == model.COLD else row.hot_samples for row, _ in timed),
        rates=rates(info, *ceiling_of(evidence, cell), middle),
        wrong_output=bool(wrong) or (validated is not None and is_wrong(validated)),
        **shared,
    )


def _without(evidence: Evidence, found: list[Launch], launched: list[LaunchRecord], cell: Cell, mode: str) -> Outcome:
    """Return why a target has no times."""
    if mode == model.HOT and any(row.status == "ok" for row in found):
        reason = next((row.hot_message for row in found if row.hot_message), "")
        return Outcome(status="not_run", message=reason or "its launches recorded no replays of a CUDA graph")
    if found:
        return unblamed(found[0].ended())
    failed = [launch for launch in launched[:1] if launch.status != "ok"]
    first = evidence.blocked(cell) or next(iter(failed), None)
    return unblamed(first.ended()) if first else Outcome(status="not_run", message="the run has no launch of it")


def _on_gpu(found: list[Launch]) -> OnGpu:
    enqueues = [row.enqueue_us for row in found if row.enqueue_us]
    clocks = [row.sm_mhz for row in found if row.sm_mhz]
    return OnGpu(
        enqueue_us=median(enqueues) if enqueues else None,
        sm_mhz=median(clocks) if clocks else None,
        throttled_samples=sum(row.throttled for row in found),
        throttled_launches=sum(row.throttled > 0 for row in found),
        capped_samples=sum(row.capped for row in found),
        capped_launches=sum(row.capped > 0 for row in found),
    )


SUPPORT = {
    ("unsupported", "unsupported"): model.UNSUPPORTED,
    ("ok", "unsupported"): model.NO_LONGER_SUPPORTED,
    ("unsupported", "ok"): model.NEWLY_SUPPORTED,
}


def compare_times(evidence: Evidence, base: LatencySide, this: LatencySide, min_effect: float) -> Latency:
    """Return both sides; with a verdict where there is nothing to test."""
    latency = Latency(verdict="", why="", baseline=base, this=this, min_effect=min_effect)
    not_comparable = explain_not_comparable(evidence) if this.status == "ok" else ""
    if base.status == this.status == "ok" and latency.samples[0] and not not_comparable:
        return latency
    verdict = model.BROKEN if this.status in STOPPED else SUPPORT.get((base.status, this.status), model.UNDECIDED)
    verdict = model.UNDECIDED if not_comparable else verdict
    before, here = evidence.names[base.environment], evidence.names[this.environment]
    why = sentence("verdicts", "untested_time", verdict, base, this, before, here, not_comparable, STOPPED)
    return replace(latency, verdict=verdict, why=why)
