"""Rules for kernels in Python that were followed in both environments: which lines of the file ran, and what the
constructor drew. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from harness.experiments.records import Line, ProfileRecord
from reports.causes.cases import Case
from reports.causes.cells import Cell
from reports.causes.making import became, excluded, make, ruled
from reports.causes.model import (
    BAD,
    GOOD,
    INPUTS_MOVED,
    KERNEL_CODE_MOVED,
    PLAIN,
    STRONG,
    SUGGESTIVE,
    Cause,
    Entry,
    Figure,
    Ruled,
)
from reports.factors import DIFFERS, SAME
from reports.model import Seen

LINES_SHOWN = 8
ASKS = re.compile(r"__version__|\bversion\b|\bversion_info\b|\bhasattr\(|\bgetattr\(")


@dataclass(frozen=True, kw_only=True)
class Followed:
    """A cell whose kernel was followed in the baseline and here. `path`: where the latter stands."""

    cell: Cell
    base: ProfileRecord
    this: ProfileRecord
    path: str

    @property
    def ways(self) -> tuple[list[Line], list[Line]]:
        """The lines that ran in the baseline alone, and here alone."""
        known = [{line.number for line in record.lines} for record in (self.base, self.this)]
        gone = [line for line in self.base.lines if line.number not in known[1]]
        return gone, [line for line in self.this.lines if line.number not in known[0]]

    @property
    def seen(self) -> list[Seen]:
        """Which lines these are, in words."""
        return [
            Seen(text=f"of its file ran {where} alone: {', '.join(map(_named, lines[:LINES_SHOWN]))}", record=self.path)
            for where, lines in zip(("in the baseline", "here"), self.ways, strict=True)
            if lines
        ]

    @property
    def asking(self) -> Seen | None:
        """The lines that ask what they run on: what one of them chooses within itself, no coverage of lines shows."""
        found = [line for line in self.this.lines if ASKS.search(line.text)][:LINES_SHOWN]
        said = "; ".join(f"{_named(line)}: {line.text}" for line in found)
        text = f"not excluded: its file chooses by what it runs on ({said})"
        return Seen(text=text, record=self.path) if found else None


def _named(line: Line) -> str:
    return f"line {line.number}"


def followed(case: Case, cell: Cell) -> Followed | None:
    """None where it was not followed in both, or by another Python."""
    base, this = (cell.profile(name, whole=False) for name in (case.baseline, case.environment))
    pythons = {stack.observed.python.rpartition(".")[0] for stack in case.stacks if stack and stack.observed}
    if base is None or this is None or not base[0].lines or not this[0].lines or len(pythons) != 1:
        return None  # which lines count as run is each Python's own
    return Followed(cell=cell, base=base[0], this=this[0], path=this[1])


def ways_seen(case: Case, cell: Cell) -> list[Seen]:
    """Beside an operator that came, or calls that multiplied: the lines that brought them."""
    told = followed(case, cell)
    return told.seen if told is not None else []


def _moved(case: Case) -> Iterator[Followed]:
    """Those whose own outputs moved, where nothing but PyTorch's version differs."""
    if not case.is_kernel or case.alone or case.one_torch or any("the variable " in text for text in case.differences):
        return
    for cell in case.moved:
        told = followed(case, cell)
        if told is not None and cell.inputs.state == SAME and cell.bits.state == DIFFERS:
            yield told


def takes_another_way(case: Case) -> Cause | None:
    """The file is one text, and its own lines choose: which of them run is not the same in both environments."""
    found = [each for each in _moved(case) if any(each.ways)]
    if not found or case.unsteady:
        return None
    cells = [each.cell for each in found]
    return make(
        case,
        KERNEL_CODE_MOVED,
        STRONG,
        f"{case.kernel} {became(cells[0])} by a choice of its own: other lines of its file run here than in the "
        "baseline.",
        cells,
        [
            *(Seen(text=f"{cell.workload}: {cell.row.correctness.why}", record=cell.record) for cell in cells[:3]),
            *found[0].seen,
            Seen(text="not excluded: that a value decides, which one of PyTorch's operators gave, and not the version"),
        ],
        ruled=[
            ruled("the inputs", cells[0].inputs),
            excluded("chance", case.steady[0] if case.steady else None),
        ],
        command=case.explain(cells),
        figures=[_figure(found[0])],
    )


def _figure(told: Followed) -> Figure:
    gone, new = told.ways
    sides = [(line, ("ran", "did not run")) for line in gone] + [(line, ("did not run", "ran")) for line in new]
    return Figure(
        title="Lines that ran in one environment alone",
        columns=("baseline", "here"),
        rows=tuple(
            (f"{line.number}: {line.text}", tuple(Entry(text=word, state=PLAIN) for word in words))
            for line, words in sorted(sides, key=lambda side: side[0].number)[:LINES_SHOWN]
        ),
        record=told.path,
    )


def draws_otherwise(case: Case) -> Cause | None:
    """A kernel and the model that it replaces are constructed under one seed. Where one leaves the generators elsewhere
    than the other does, what is drawn for it is not what is drawn for the model."""
    found = [
        each
        for each in _moved(case)
        if {each.base.draws_as_model, each.this.draws_as_model} == {True, False}
        and each.cell.wrong == (not each.base.draws_as_model, not each.this.draws_as_model)
    ]
    if not found:
        return None
    cells = [each.cell for each in found]
    wrong, right = ("here", "in the baseline") if cells[0].wrong[1] else ("in the baseline", "here")
    return make(
        case,
        INPUTS_MOVED,
        STRONG if case.steady and not case.unsteady else SUGGESTIVE,
        f"{case.kernel} {became(cells[0])} by random numbers that are drawn when it is constructed: {wrong} they are "
        "not those that are drawn for the model.",
        cells,
        [
            *(Seen(text=f"{cell.workload}: {cell.row.correctness.why}", record=cell.record) for cell in cells[:3]),
            Seen(
                text=f"{right} constructing it leaves PyTorch's generators where constructing the model leaves them, "
                f"{wrong} it does not, under the same seed",
                record=found[0].path,
            ),
        ],
        ruled=[
            ruled("the stored inputs", cells[0].inputs),
            Ruled(
                rival="another generator in that PyTorch",
                how="the model is constructed in the same process, and is right",
                record=found[0].path,
            ),
            excluded("chance", case.steady[0] if case.steady else None),
        ],
        command=case.explain(cells),
        figures=[
            Figure(
                title="Random numbers drawn by its constructor",
                columns=("baseline", "here"),
                rows=(("the same as the model's", tuple(map(_as_model, (found[0].base, found[0].this)))),),
                record=found[0].path,
            ),
            _figure(found[0]) if any(found[0].ways) else None,
        ],
    )


def _as_model(record: ProfileRecord) -> Entry:
    return Entry(text="yes", state=GOOD) if record.draws_as_model else Entry(text="no", state=BAD)


RULES: tuple[Callable[[Case], Cause | None], ...] = (takes_another_way, draws_otherwise)
