"""A kernel that is made of PyTorch's operators. A Python file has no code of its own that could move; which of its
lines ran says what it chose, and what it drew. What an extension with a binding of its own calls is not its code. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.schema.experiment_records import ProfileRecord
from harness.worker import protocol
from reports.attribute import figures
from reports.attribute.cases import Case
from reports.attribute.cells import Cell
from reports.attribute.making import became, excluded, listed, make, ruled
from reports.attribute.model import (
    BAD,
    DEFAULT_BACKEND_MOVED,
    GOOD,
    INPUTS_MOVED,
    KERNEL_CODE_MOVED,
    PLAIN,
    REFERENCE_MOVED,
    STRONG,
    SUGGESTIVE,
    Cause,
    Entry,
    Figure,
    Ruled,
)
from reports.attribute.profiles import LINES_SHOWN, Followed, another_backend, followed
from reports.compare.factors import DIFFERS, SAME
from reports.model import Seen


def _moved(case: Case) -> Iterator[Followed]:
    """Those whose own outputs moved, where nothing but PyTorch's version differs."""
    if not case.is_kernel or case.alone or case.one_torch or case.variables:
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


NOT_FOLLOWED = Seen(
    text="not excluded: a choice that the file makes by itself, or random numbers that it draws; nobody followed it"
)


def made_of_operators(case: Case) -> Cause | None:
    """The same sources compute otherwise: of what a Python file is made, an operator moved. Of an extension that is
    said only where it runs another of attention's backends."""
    info = case.evidence.kernel(case.kernel) if case.is_kernel else None
    if info is None or case.alone or not info.sources:
        return None
    python = all(name.endswith(".py") for name in info.sources)
    if not python and not all(build is not None and build.binds_itself for build in case.builds):
        return None
    if case.unsteady or case.variables:
        return None
    if python and case.code.state == DIFFERS:
        return None  # code that the file compiles by itself
    cells = [cell for cell in case.moved if cell.inputs.state == SAME and cell.bits.state == DIFFERS]
    ended = [] if cells else [cell for cell in case.cells if _ends_in_one(cell)]
    cells = cells or ended
    if not cells:
        return None
    swapped = next((found for cell in cells if (found := another_backend(case, cell)) is not None), None)
    if swapped is None and (ended or not python):
        return None
    told = followed(case, cells[0])
    rival = NOT_FOLLOWED if told is None else told.asking
    known = swapped is not None or rival is None
    file = "a Python file that is" if python else "an extension whose sources are"
    what = "PyTorch runs another one of attention's backends for it here" if swapped else "one of these operators moved"
    return make(
        case,
        DEFAULT_BACKEND_MOVED if swapped else REFERENCE_MOVED,
        STRONG if known else SUGGESTIVE,
        f"{case.kernel} is made of PyTorch's operators by {file} the same in both environments: {what}.",
        cells,
        [
            *([Seen(text=f"by its profiles: {swapped.text}", record=swapped.record)] if swapped else []),
            *(Seen(text=f"{cell.workload}: {cell.row.correctness.why}", record=cell.record) for cell in cells[:3]),
            *([] if ended else [cells[0].bits.seen]),
            *([rival] if rival is not None and not known else []),
        ],
        ruled=[
            ruled("the inputs", cells[0].inputs),
            ruled("the kernel's code", case.code)
            if python and case.code.state == SAME
            else Ruled(
                rival="the kernel's code", how=f"{listed(info.sources)}: one text, and no code of its own loaded"
            )
            if python
            else None,
            excluded("chance", case.steady[0] if case.steady else None),
        ],
        command=case.explain(cells),
        figures=[figures.recipes_figure(cells[0])],
    )


def _ends_in_one(cell: Cell) -> bool:
    return sorted(side.status in (protocol.CRASHED, protocol.UNSUPPORTED) for side in cell.sides) == [False, True]
