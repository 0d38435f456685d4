"""At which sequence lengths a kernel is wrong: whole tiles alone are right, or all lengths up to one. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from harness.experiments.lengths import TILES, crossings
from harness.run_records import WorkloadInfo
from reports.causes import figures
from reports.causes.cases import Case
from reports.causes.cells import Cell
from reports.causes.making import make, number, steady_rivals, was_so
from reports.causes.model import RANGE_OVERFLOW, STRONG, SUGGESTIVE, Cause, Figure, Ruled
from reports.causes.observed import Conditions, died
from reports.model import Seen

FEWEST = 3  # right lengths, and wrong ones, that make a pattern
ROUND = 32  # what divides a limit that somebody may have set


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """One kernel in one environment, on inputs that differ in their length."""

    conditions: Conditions

    @cached_property
    def right(self) -> list[int]:
        return sorted(each.condition.seq_len for each in self.conditions.ran if each.runs and each.passed == each.runs)

    @cached_property
    def wrong(self) -> list[int]:
        results = [*self.conditions.ran, *filter(died, self.conditions.record.results)]
        return sorted({each.condition.seq_len for each in results} - set(self.right))

    @property
    def told(self) -> bool:
        return min(len(self.right), len(self.wrong)) >= FEWEST

    @property
    def tile(self) -> int | None:
        """What divides every length that is right, and none that is wrong."""
        fits = (
            tile
            for tile in TILES
            if not any(each % tile for each in self.right) and all(each % tile for each in self.wrong)
        )
        return next(fits, None) if self.told else None

    @property
    def last(self) -> int | None:
        """The longest that is right, where every shorter one is right and every longer one wrong."""
        return self.right[-1] if self.told and self.right[-1] < self.wrong[0] else None

    @property
    def seen(self) -> Seen:
        tried = f"{len(self.right) + len(self.wrong)} lengths tried"
        if not self.right:
            said = f"wrong at every length ({tried})"
        elif self.tile:
            said = f"right where {self.tile} divides the length, wrong where it does not ({tried})"
        elif self.last:
            said = f"right up to {self.last} rows, wrong from {self.wrong[0]} on ({tried})"
        else:
            said = f"right at {len(self.right)} of {tried}: {_some(self.right)}; wrong at {_some(self.wrong)}"
        return Seen(text=f"{self.conditions.record.workload}: {said}", record=self.conditions.path)

    @property
    def figure(self) -> Figure:
        results = sorted(self.conditions.ran, key=lambda each: each.condition.seq_len)
        title = f"{self.conditions.record.workload}: other lengths"
        return figures.conditions_figure(title, results, self.conditions.path)


def _some(lengths: list[int]) -> str:
    return ", ".join(map(str, lengths[:6])) + (", ..." if len(lengths) > 6 else "")


def lengths_of(cell: Cell) -> list[Lengths]:
    return [Lengths(conditions=each) for each in cell.lengths]


def count_leaves_its_type(case: Case) -> Cause | None:
    """Right up to the very length at which something that a kernel counts still fits into its type, wrong from the next
    on: an offset or a count has no place in it."""
    found = [
        (cell, lengths, said)
        for cell in case.cells
        if all(cell.wrong) or cell.row.alone
        for lengths in lengths_of(cell)[-1:]
        if (said := _crossed(lengths, case.evidence.workload(cell.workload))) is not None
    ]
    if not case.is_kernel or not found or case.unsteady:
        return None
    cells = [cell for cell, _, _ in found]
    _, lengths, said = found[0]
    last = lengths.last or 0
    chosen = last % ROUND == 0
    return make(
        case,
        RANGE_OVERFLOW,
        SUGGESTIVE if chosen else STRONG,
        f"{case.subject} is right up to {last} rows and wrong from {last + 1} on, where {said}: an offset or a count "
        "leaves the range of its type.",
        cells,
        [
            *(each.seen for _, each, _ in found[:3]),
            *([Seen(text=f"not excluded: a buffer or a limit of its own that ends at {last} rows")] if chosen else []),
            *was_so(cells),
        ],
        ruled=[
            Ruled(
                rival="the algorithm as a whole",
                how=f"{number(len(lengths.right), 'shorter length')} pass",
                record=lengths.conditions.path,
            ),
            *steady_rivals(case),
        ],
        figures=[lengths.figure],
    )


def _crossed(lengths: Lengths, workload: WorkloadInfo | None) -> str | None:
    """What passes a limit of a type between two lengths that lie side by side, in words."""
    if workload is None or not workload.batch or not workload.heads or not workload.head_dim:
        return None
    last = lengths.last
    if last is None or lengths.wrong[0] != last + 1:
        return None
    passed = crossings(workload.batch, workload.heads, workload.head_dim, last)
    return next((f"there are more {count.what} than {limit:,}" for count, limit in passed), None)


RULES: tuple[Callable[[Case], Cause | None], ...] = (count_leaves_its_type,)
