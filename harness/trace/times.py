"""Which operators a script's other time comes from. Pure.

Samples of both versions are taken in turns: they are compared as a matrix's launches are, within blocks
(`harness.stats`), by the thresholds of matrix.yaml.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.schema.run_records import Thresholds
from harness.stats.decide import FASTER, SLIGHTLY_FASTER, SLIGHTLY_SLOWER, SLOWER, UNDECIDED, decide_rows
from harness.trace.align import Alignment, names_of
from harness.trace.localise import short
from harness.trace.model import Trace

MOVED = (SLOWER, FASTER, SLIGHTLY_SLOWER, SLIGHTLY_FASTER)
LEAST = 0.02  # of the script's time: what takes less in both versions is not tested
Indices = tuple[int, ...]
Samples = tuple[Sequence[float], Sequence[float]]


@dataclass(frozen=True)
class Compared:
    """Samples of the good and the bad version, of the same rounds: seconds, or bytes. `verdict`, the ratio and its
    interval are those of `harness.stats`; there is no ratio where one version has nothing, and no interval where it was
    not tested."""

    good: tuple[float, ...]
    bad: tuple[float, ...]
    verdict: str = UNDECIDED
    ratio: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def medians(self) -> tuple[float, float]:
        return statistics.median(self.good), statistics.median(self.bad)

    @property
    def difference(self) -> float:
        good, bad = self.medians
        return bad - good

    def facts(self) -> dict[str, Any]:
        good, bad = self.medians
        return {
            "good": good,
            "bad": bad,
            "difference": self.difference,
            "ratio": self.ratio,
            "low": self.low,
            "high": self.high,
            "verdict": self.verdict,
            "samples": len(self.good),
        }


def compare(pairs: Sequence[Samples], thresholds: Thresholds) -> list[Compared]:
    """All of these together, none of which is nought, as the rows of one page."""
    least = [thresholds.min_effect("cpu")] * len(pairs)
    decided = decide_rows(pairs, least, thresholds.confidence, thresholds.false_discovery_rate)
    return [
        Compared(tuple(good), tuple(bad), verdict, estimate.ratio, estimate.low, estimate.high)
        for (good, bad), (estimate, _, verdict) in zip(pairs, decided, strict=True)
    ]


@dataclass
class Row:
    """All calls of one kind at one line."""

    kind: str
    line: str
    phase: str
    sites: list[tuple[Indices, Indices]] = field(default_factory=list)  # operators of the good and of the bad trace
    seconds: Compared = Compared((0.0,), (0.0,))
    peak_bytes: tuple[int, int] = (0, 0)  # of the call that needs most


@dataclass(frozen=True)
class Measured:
    """A version's trace, and of its operators the nanoseconds of each run, and the most bytes that a call needs."""

    trace: Trace
    spent_ns: Sequence[Sequence[int]]
    peak_bytes: Sequence[int]


def rows_of(good: Measured, bad: Measured, alignment: Alignment, whole: Compared, thresholds: Thresholds) -> list[Row]:
    """Every kind and line, those first whose time moved most."""
    sites: list[tuple[Indices, Indices]] = [((g,), (b,)) for g, b in alignment.pairs]
    sites += [(tuple(region.good), tuple(region.bad)) for region in alignment.regions]
    found: dict[tuple[str, str, str], Row] = {}
    for g, b in sites:
        first = bad.trace.operators[b[0]] if b else good.trace.operators[g[0]]
        before, after = short(names_of(good.trace, g)), short(names_of(bad.trace, b))
        same = len(g) == len(b) == 1 and good.trace.operators[g[0]].name == first.name
        kind = first.name if same else f"{before} -> {after}"
        row = found.setdefault((kind, first.line, first.phase), Row(kind, first.line, first.phase))
        row.sites.append((g, b))
    for row in found.values():
        own = [[index for site in row.sites for index in site[side]] for side in (0, 1)]
        row.seconds = Compared(_sums(good.spent_ns, own[0]), _sums(bad.spent_ns, own[1]))
        row.peak_bytes = _most(good.peak_bytes, own[0]), _most(bad.peak_bytes, own[1])
    _decide(list(found.values()), LEAST * max(whole.medians), thresholds)
    return sorted(found.values(), key=lambda row: -abs(row.seconds.difference))


def _decide(rows: Sequence[Row], least_s: float, thresholds: Thresholds) -> None:
    """Compare what takes so long in either version. What only one version calls needs no test."""
    long = [row for row in rows if max(row.seconds.medians) >= least_s]
    tested = [row for row in long if min(row.seconds.medians)]
    for row in long:
        verdict = SLOWER if row.seconds.difference > 0 else FASTER
        row.seconds = Compared(row.seconds.good, row.seconds.bad, verdict)
    compared = compare([(row.seconds.good, row.seconds.bad) for row in tested], thresholds)
    for row, seconds in zip(tested, compared, strict=True):
        row.seconds = seconds


def _sums(runs: Sequence[Sequence[int]], indices: Sequence[int]) -> tuple[float, ...]:
    return tuple(sum(run[index] for index in indices) * 1e-9 for run in runs)


def _most(values: Sequence[int], indices: Sequence[int]) -> int:
    return max((values[index] for index in indices), default=0)


def largest(row: Row, good_ns: Sequence[int], bad_ns: Sequence[int]) -> tuple[Indices, Indices]:
    """The call that takes longest, of those that both versions make."""
    both = [site for site in row.sites if site[0] and site[1]]
    return max(
        both, key=lambda site: sum(good_ns[i] for i in site[0]) + sum(bad_ns[i] for i in site[1]), default=((), ())
    )


def shares(rows: Sequence[Row], whole: Compared, shown: int) -> tuple[float | None, float | None]:
    """How much of the whole script's difference all rows, and those that are shown, add up to; None where the whole's
    is not decided."""
    if whole.verdict not in MOVED:
        return None, None
    sums = [sum(row.seconds.difference for row in some) for some in (rows, rows[:shown])]
    return sums[0] / whole.difference, sums[1] / whole.difference
