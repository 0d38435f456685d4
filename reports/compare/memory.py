"""Peak memory of one target's calls in one environment, against the same in the baseline. Pure.

One launch gives one peak, and environments are compared as their times are: by the ratio within blocks, with its
interval and a test over all rows. Small peaks differ by a page or a block, so a change counts only where it is also
`FLOOR_BYTES` or more: what is smaller counts as that much, and of little memory only a large share counts.
"""

from __future__ import annotations

import math
from statistics import median
from typing import Any

from harness.schema.run_records import Cell
from harness.stats.peaks import FLOOR_BYTES
from harness.worker import protocol
from reports import model
from reports.compare.decisions import explain_not_comparable
from reports.load.evidence import Evidence
from reports.model import Comparison, Memory, MemorySide
from reports.sentences import sentence
from reports.text import words


def has_ratio(memory: Memory) -> bool:
    return memory.has_ratio


def memory_text(memory: Memory) -> str:
    """Return how much memory it took, such as "2.10x the memory"; of peaks too small to divide by, the difference."""
    return sentence("verdicts", "memory", memory)


def memory_open(row: Comparison) -> bool:
    """Return whether its peaks differ by more than counts, and it is undecided whether they do."""
    memory = row.memory
    apart = abs(math.log(memory.ratio)) > math.log(1 + memory.min_effect) if memory.ratio else False
    return apart and memory.verdict == model.UNDECIDED and not row.uncompared(memory)


def side(evidence: Evidence, cell: Cell, target: str) -> MemorySide:
    """`target` is `kernel` or a reference's name; the cell's kernel is the one in whose launches it was measured."""
    measured_with = None if target == protocol.KERNEL else cell.kernel
    launches = evidence.timed(cell, target)
    found = [(launch.block, launch.memory) for launch in launches if launch.memory is not None]
    if not found:
        failed = next((launch for launch in launches if launch.memory_message or launch.status != "ok"), None)
        why = (failed.memory_message or failed.message or words(failed.status)) if failed is not None else ""
        message = sentence("verdicts", "not_measured", why)
        return MemorySide(environment=cell.environment, status="not_run", message=message, measured_with=measured_with)
    medians: dict[str, Any] = {}
    for name in ("peak_bytes", "kept_bytes", "reserved_bytes", "outside_bytes"):
        values = [value for _, measured in found if (value := getattr(measured, name)) is not None]
        medians[name] = median(values) if values else None
    return MemorySide(
        environment=cell.environment,
        status="ok",
        record=evidence.launches_pointer(cell.environment, cell.kernel, cell.device),
        measured_with=measured_with,
        blocks=[block for block, _ in found],
        peaks_bytes=[measured.peak_bytes for _, measured in found],
        **medians,
    )


def compare_memory(evidence: Evidence, base: MemorySide, this: MemorySide) -> Memory:
    """Return both sides; with a verdict where there is nothing to test."""
    missing = [each for each in (base, this) if each.status != "ok"]
    not_comparable = explain_not_comparable(evidence)
    peaks = [each.peak_bytes or 0.0 for each in (base, this)]
    share = max(evidence.run.thresholds.memory, FLOOR_BYTES / max(FLOOR_BYTES, min(peaks)))
    memory = Memory(verdict="", why="", baseline=base, this=this, min_effect=share)
    if memory.samples[0] and not missing and not not_comparable:
        return memory
    verdict = model.NO_DATA if missing else model.UNDECIDED
    why = sentence("verdicts", "untested_memory", verdict, missing, evidence.names, not_comparable)
    return Memory(verdict=verdict, why=why, baseline=base, this=this, min_effect=share)
