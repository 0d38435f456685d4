"""A kernel that is made of PyTorch's operators: a Python file has no code of its own that could move, and what an
extension with a binding of its own calls is not its code."""

from __future__ import annotations

from collections.abc import Callable

from harness.inside import protocol
from reports.causes import figures
from reports.causes.cases import Case
from reports.causes.cells import Cell
from reports.causes.followed import draws_otherwise, followed, takes_another_way
from reports.causes.making import excluded, listed, make, ruled
from reports.causes.model import DEFAULT_BACKEND_MOVED, REFERENCE_MOVED, STRONG, SUGGESTIVE, Cause, Ruled
from reports.causes.profiles import another_backend
from reports.causes.references import default_moved_under, reference_moved_under
from reports.causes.wrapped import computed_from_else, reference_inside
from reports.factors import DIFFERS, SAME
from reports.model import Seen

# They say which operator, or what else it was.
NEARER = (
    reference_moved_under,
    default_moved_under,
    reference_inside,
    computed_from_else,
    draws_otherwise,
    takes_another_way,
)


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
    if case.unsteady or any("the variable " in text for text in case.differences):
        return None
    if any(rule(case) is not None for rule in NEARER):
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


RULES: tuple[Callable[[Case], Cause | None], ...] = (made_of_operators,)
