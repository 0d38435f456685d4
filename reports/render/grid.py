"""Words of times, and the grid's cells: a subject in one version, its time and memory against the baseline's. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from reports import model
from reports.compare.memory import memory_open, memory_text
from reports.model import Comparison, Latency
from reports.text import TIMES, change_text, percent, span


@dataclass(frozen=True, kw_only=True)
class GridCell:
    """One subject in one version: its outputs, and its time against the baseline's; each with a verdict for colour. Its
    memory, where that moved."""

    outputs: str
    verdict: str
    time: str = ""
    time_verdict: str = ""
    memory: str = ""
    memory_verdict: str = ""


def memory_cell(rows: Sequence[Comparison]) -> dict[str, str]:
    """Where it moved, or may have, of all rows the one that moved farthest."""
    moved = [row.memory for row in rows if row.memory.verdict in (model.REGRESSED, model.IMPROVED)]
    moved = moved or [row.memory for row in rows if memory_open(row)]
    if not moved:
        return {}
    worst = min(moved, key=lambda each: (model.VERDICTS.index(each.verdict), -abs(math.log(each.ratio or 1.0))))
    undecided = ": undecided" if worst.verdict == model.UNDECIDED else ""
    return {"memory": f"{memory_text(worst)}{undecided}", "memory_verdict": worst.verdict}


def time_cell(rows: Sequence[Comparison]) -> dict[str, str]:
    """Of each row the worst of its times."""
    measured = [[timed for timed in row.timed if timed.ratio] for row in rows]
    times = [min(own, key=lambda each: model.VERDICTS.index(each.verdict)) for own in measured if own]
    if not times:
        return {}
    worst = min(times, key=lambda each: model.VERDICTS.index(each.verdict))
    ratios = sorted(each.ratio or 1.0 for each in times)
    text = change_text(times[0]) if len(times) == 1 else span(ratios, "{:.2f}" + TIMES)
    if any(each.baseline.wrong_output or each.this.wrong_output for each in times):
        return {"time": f"{text}, of a wrong output"}
    return {"time": text, "time_verdict": worst.verdict}


def moved_text(timed: Latency, word: str) -> str:
    """34% slower [30%, 38%]; beyond a factor of two as the factor itself."""
    ratio, low, high = timed.ratio or 1.0, timed.low, timed.high
    word = "the time" if ratio >= 2 else word

    def form(value: float) -> str:
        return f"{value:.2f}{TIMES}" if ratio >= 2 else percent(abs(value - 1))

    if low is None or high is None:
        return f"{form(ratio)} {word} (no interval)"
    ends = sorted((low, high), key=lambda value: abs(value - 1))
    return f"{form(ratio)} {word} [{form(ends[0])}, {form(ends[1])}]"
