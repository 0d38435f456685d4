"""Rules for kernels that are right where their numbers have wider types, or up to one sequence length. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from harness.experiments.lengths import TILES, crossings
from harness.schema.experiment_records import ConditionResult
from harness.schema.run_records import WorkloadInfo
from reports.attribute import figures, thresholds
from reports.attribute.cases import Case
from reports.attribute.cells import Cell
from reports.attribute.making import make, number, steady_rivals, was_so
from reports.attribute.messages import died
from reports.attribute.model import DECISIVE, RANGE_OVERFLOW, STRONG, SUGGESTIVE, Cause, Figure, Ruled
from reports.attribute.observed import Conditions
from reports.attribute.recipes import PLAIN_RECIPE, as_tested, masks_text
from reports.model import Seen


def right_when_wider(case: Case) -> Cause | None:
    """NaN or infinity, and none where the same code is given the same numbers in a wider type, and right there: what
    it computes is right, and a number on the way has no place in its type, whatever the size of the inputs."""
    found = [
        (cell, conditions)
        for cell in case.cells
        for conditions in cell.wider
        if not cell.first_right(PLAIN_RECIPE) and _only_wider_is_right(conditions)
    ]
    if not found or case.unsteady:
        return None
    cells = list(dict.fromkeys(cell for cell, _ in found))
    path = found[0][1].path
    return make(
        case,
        RANGE_OVERFLOW,
        STRONG,
        f"{case.subject} gives NaN or infinity in its type, and is right in a wider one: a number that it computes "
        "leaves the range of its type.",
        cells,
        [*(Seen(text=f"{cell.workload}: {masks_text(c)}", record=c.path) for cell, c in found[:2]), *was_so(cells)],
        ruled=[
            Ruled(rival="the algorithm", how="the same code is right on the same numbers in float64", record=path),
            *steady_rivals(case),
        ],
        figures=[
            figures.conditions_figure(f"{cells[0].workload}: the same numbers", found[0][1].ran, path),
        ],
    )


def _only_wider_is_right(conditions: Conditions) -> bool:
    full = any(each.nonfinite for each in conditions.ran if each.condition == as_tested(each))
    return full and conditions.right_when_wider


def right_in_wider_integers(case: Case) -> Cause | None:
    """Wrong, and right where the same file gets 64 bits wherever it asks PyTorch for integers of fewer: one of
    those wraps. What is rounded or clamped to a whole number on purpose stays as wrong as it was."""
    found = [
        (cell, conditions)
        for cell in case.cells
        for conditions in cell.wider
        if not cell.first_right(PLAIN_RECIPE) and _only_integers_matter(conditions)
    ]
    if not case.is_kernel or not found or case.unsteady:
        return None
    cells = list(dict.fromkeys(cell for cell, _ in found))
    path = found[0][1].path
    certain = case.memory_clean and case.steady and all(cell.first_right(PLAIN_RECIPE) is False for cell in cells)
    return make(
        case,
        RANGE_OVERFLOW,
        DECISIVE if certain else STRONG,
        f"{case.kernel} is right where it is given integers of 64 bits in place of the narrower ones that it asks "
        "for: one of these leaves the range of its type.",
        cells,
        [*(Seen(text=f"{cell.workload}: {masks_text(c)}", record=c.path) for cell, c in found[:2]), *was_so(cells)],
        ruled=[
            Ruled(rival="the algorithm", how="the same code is right with wider integers", record=path),
            *steady_rivals(case),
        ],
        figures=[figures.conditions_figure(f"{cells[0].workload}: the same numbers", found[0][1].ran, path)],
    )


def _only_integers_matter(conditions: Conditions) -> bool:
    """Wrong as validated and when it is made anew in the same way, and right in every run with wide integers."""
    validated = [each for each in conditions.ran if each.condition == as_tested(each)]
    control, wide = (
        [each for each in conditions.ran if each.condition.integers == asked] for asked in ("as_asked", "int64")
    )
    wrong = validated and control and not any(map(_right, (*validated, *control)))
    return bool(wrong and wide) and all(map(_right, wide))


def _right(result: ConditionResult) -> bool:
    return result.runs > 0 and result.passed == result.runs


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
        return min(len(self.right), len(self.wrong)) >= thresholds.FEWEST_LENGTHS

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
    chosen = last % thresholds.ROUND_LENGTH == 0
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
