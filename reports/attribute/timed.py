"""Times of a case that were called slower or faster, and what else of the same launches was measured. Pure.

Targets of the same launches are each other's controls: where one got slower and every other target of the same
process did not, the machine is not the reason, and the reverse.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from reports import model
from reports.attribute import figures, thresholds
from reports.attribute.cases import Case
from reports.attribute.cells import Cell
from reports.attribute.making import make, number
from reports.attribute.model import LATENCY, Cause, Figure, Ruled
from reports.load.evidence import Evidence
from reports.model import Comparison, Latency, Seen

CALLED = (model.REGRESSED, model.IMPROVED)


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """All other rows with times of one environment, device and mode, by verdict."""

    total: int
    alike: int
    steady: int
    against: int
    median_ratio: float

    @property
    def everywhere(self) -> bool:
        """Most targets moved alike, and none stood still: the machine or the stack, and not one of them."""
        return self.alike >= max(2, thresholds.MOSTLY * self.total) and not self.steady and not self.against


@dataclass(frozen=True, kw_only=True)
class Timed:
    """The cells of one case that were called slower, or faster, in one mode."""

    case: Case
    verdict: str
    mode: str
    cells: tuple[Cell, ...]
    around: Neighbours

    def latency(self, cell: Cell) -> Latency:
        return cell.row.hot if self.mode == model.HOT and cell.row.hot is not None else cell.row.latency

    @property
    def word(self) -> str:
        return "slower" if self.verdict == model.REGRESSED else "faster"

    @property
    def sign(self) -> int:
        return 1 if self.verdict == model.REGRESSED else -1

    @cached_property
    def extent(self) -> str:
        """2.9 to 4.5 times, or one ratio."""
        ratios = sorted(ratio for cell in self.cells if (ratio := self.latency(cell).ratio))
        if not ratios:
            return self.word
        low, high = ratios[0], ratios[-1]
        shown = f"{low:.2f}\N{MULTIPLICATION SIGN}"
        if high / low > 1.02:
            shown = f"{low:.2f} to {high:.2f}\N{MULTIPLICATION SIGN}"
        return f"{self.word}: {shown} the baseline's time"

    @cached_property
    def seen(self) -> list[Seen]:
        """The change as it was measured."""
        found = [
            Seen(text=f"{cell.workload}: {self.latency(cell).why}", record=self.latency(cell).this.record)
            for cell in self.cells[:3]
        ]
        if self.around.total:
            text = (
                f"{self.around.alike} of {self.around.total} other targets of this environment are {self.word} too "
                f"(median ratio of all {self.around.median_ratio:.3f})"
            )
            found.append(Seen(text=text))
        return found + _modes_and_clock(self.cells[0].row)

    @property
    def machine_ruled_out(self) -> Ruled | None:
        if not self.around.steady:
            return None
        how = f"{number(self.around.steady, 'other target')} of the same launches did not move"
        return Ruled(rival="clock and load", how=how)

    @property
    def ratios(self) -> Figure:
        title = f"Median of launch medians{', ' + self.mode if self.cells[0].row.hot else ''}"
        return figures.ratios_figure(title, [(cell.workload, self.latency(cell)) for cell in self.cells])

    def make(
        self,
        cause: str,
        grade: str,
        statement: str,
        evidence: Sequence[Seen],
        ruled: Sequence[Ruled | None] = (),
        extra: Sequence[Figure | None] = (),
        gist: tuple[str, ...] = (),
        command: str = "",
        measured: bool = False,
    ) -> Cause:
        ratios = [ratio for cell in self.cells if (ratio := self.latency(cell).ratio)]
        return make(
            self.case,
            cause,
            grade,
            statement,
            self.cells,
            [*self.seen, *evidence],
            about=LATENCY,
            ruled=ruled,
            command=command or f"{self.case.command(self.cells)} --fresh",
            figures=[*extra, self.ratios],
            gist=(*gist, self.case.environment, self.word) if gist else (),
            measured=measured,
            ratio=max(ratios, default=1.0) if self.sign > 0 else min(ratios, default=1.0),
        )


def _modes_and_clock(row: Comparison) -> list[Seen]:
    """What the other mode and the clock say: each points at another part of a call."""
    if row.hot is None:
        return []
    cold, hot, found = row.latency, row.hot, []
    if cold.ratio is not None and hot.ratio is not None:
        text = f"cold {cold.ratio:.3f}, hot {hot.ratio:.3f}: "
        if hot.verdict == cold.verdict:
            text += "the device's own work moved, since replays of a graph hold neither launch gaps nor cache misses"
        elif hot.verdict == model.PASS:
            text += "replays did not move, so it is not the arithmetic"
        elif cold.verdict == model.PASS:
            text += "only replays moved: with a cold cache something else hides it"
        else:
            text += f"{hot.verdict.replace('_', ' ')} in replays of a graph, {cold.verdict.replace('_', ' ')} cold"
        found.append(Seen(text=text, record=cold.this.record))
    one, two = cold.baseline.gpu, cold.this.gpu
    moved = clock_ratio(cold)
    if one is not None and two is not None and moved is not None and abs(moved - 1) > thresholds.CLOCK_TOLD:
        text = f"SM clock while sampled: {one.sm_mhz:.0f} MHz in the baseline, {two.sm_mhz:.0f} here"
        found.append(Seen(text=text, record=cold.this.record))
    return found


def clock_ratio(latency: Latency) -> float | None:
    one, two = latency.baseline.gpu, latency.this.gpu
    if one is None or two is None or not one.sm_mhz or not two.sm_mhz:
        return None
    return two.sm_mhz / one.sm_mhz


def differences_seen(case: Case, *, of_threads: bool = False) -> list[Seen]:
    return [Seen(text=each.text) for each in case.differences if each.of_threads or not of_threads]


def timed_groups(evidence: Evidence, cases: Sequence[Case]) -> list[Timed]:
    rows = [cell.row for case in cases for cell in case.cells]
    counted = _count(rows)
    found = []
    for case in cases:
        if case.alone or case.rows[0].control:
            continue
        groups: dict[tuple[str, str], list[Cell]] = {}
        for cell in case.cells:
            mode, timed = leading(cell.row)
            if timed.verdict in CALLED:
                groups.setdefault((timed.verdict, mode), []).append(cell)
        for (verdict, mode), cells in groups.items():
            around = _around(counted, case, verdict, mode)
            found.append(Timed(case=case, verdict=verdict, mode=mode, cells=tuple(cells), around=around))
    return found


def leading(row: Comparison) -> tuple[str, Latency]:
    """The mode that was called a change: cold, which holds whatever a call costs, before hot."""
    if row.hot is not None and row.latency.verdict not in CALLED and row.hot.verdict in CALLED:
        return model.HOT, row.hot
    return model.COLD, row.latency


Counted = dict[tuple[str, str, str], list[tuple[str, str, float]]]


def _count(rows: Sequence[Comparison]) -> Counted:
    found: Counted = {}
    for row in rows:
        for mode, timed in zip((model.COLD, model.HOT), row.timed, strict=False):
            if timed.ratio is not None:
                found.setdefault((row.environment, row.device, mode), []).append(
                    (f"{row.kind} {row.target}", timed.verdict, timed.ratio)
                )
    return found


def _around(counted: Counted, case: Case, verdict: str, mode: str) -> Neighbours:
    every = counted.get((case.environment, case.device, mode), [])
    own = f"{case.rows[0].kind} {case.rows[0].target}"
    others = [(told, ratio) for name, told, ratio in every if name != own]
    return Neighbours(
        total=len(others),
        alike=sum(told == verdict for told, _ in others),
        steady=sum(told == model.PASS for told, _ in others),
        against=sum(told in CALLED and told != verdict for told, _ in others),
        median_ratio=statistics.median(ratio for _, _, ratio in every) if every else 1.0,
    )
