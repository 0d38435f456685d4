"""Which rows moved, which were never right, and which of them a reader must see first. Pure."""

from __future__ import annotations

import math

from reports import model
from reports.compare.correctness import FAILED
from reports.compare.latency import STOPPED
from reports.compare.rows import KERNEL
from reports.model import Comparison, Latency


def correctness_moved(row: Comparison) -> bool:
    judged = row.correctness
    return judged.verdict in model.MOVED and not (judged.verdict == model.BROKEN and judged.baseline.status in FAILED)


def _time_moved(timed: Latency) -> bool:
    """What has no times here, and for its own failure had none in the baseline, did not move."""
    return timed.verdict in model.MOVED and not (timed.verdict == model.BROKEN and timed.baseline.status in STOPPED)


def latency_moved(row: Comparison) -> bool:
    return any(map(_time_moved, row.timed))


def leading_time(row: Comparison) -> tuple[str, Latency]:
    """The mode, cold or hot, that speaks for a row where one verdict must: cold, unless only hot moved."""
    if row.hot is not None and _time_moved(row.hot) and not _time_moved(row.latency):
        return model.HOT, row.hot
    return model.COLD, row.latency


def never_right(rows: list[Comparison]) -> list[Comparison]:
    """Kernels' rows whose target and workload are wrong or broken in every version, the baseline included."""
    found: dict[tuple[str, str, str], list[Comparison]] = {}
    for row in rows:
        if row.kind == KERNEL and not row.alone and not row.control:
            found.setdefault((row.target, row.workload, row.device), []).append(row)
    return [
        group[0]
        for group in found.values()
        if all(
            row.correctness.verdict == model.FAILING
            or {row.correctness.baseline.status, row.correctness.this.status} <= STOPPED
            for row in group
        )
    ]


def has_moved(row: Comparison, under_a_moved_reference: bool = False) -> bool:
    """A verdict that moved, or a reference that moved under a kernel that did not."""
    if row.alone:
        return row.correctness.verdict in (model.BROKEN, model.FAILING)
    return correctness_moved(row) or latency_moved(row) or under_a_moved_reference


def significance(row: Comparison) -> tuple[float, ...]:
    """Sort key, most significant first: worse outputs, kernels before references, slower before other outputs that
    moved and those before faster, the smaller q, the larger change."""
    worse_output = row.correctness.verdict in model.WORSE and (row.alone or correctness_moved(row))
    timed = leading_time(row)[1]
    worse_time = timed.verdict in model.WORSE and (row.alone or latency_moved(row))
    q = timed.q_value if timed.q_value is not None else 1.0
    change = abs(math.log(timed.ratio)) if timed.ratio else 0.0
    moved = correctness_moved(row)
    return (not worse_output, row.kind != KERNEL, not worse_time, not moved, q, -change)
