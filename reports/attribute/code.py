"""Rules for a kernel whose own outputs moved on the same inputs: its build, its code, or what runs around it.

Object code that was built in one environment and run in the other holds one of the two fixed; without that, a hash of
the disassembly says whether the code moved at all.
"""

from __future__ import annotations

from dataclasses import replace

from harness.worker import protocol
from reports import model
from reports.attribute import figures, variables
from reports.attribute.cases import Case
from reports.attribute.cells import Cell
from reports.attribute.making import became, excluded, last_words, listed, make, ruled
from reports.attribute.messages import build_flags, died
from reports.attribute.model import (
    BUILD_MOVED,
    DECISIVE,
    ENVIRONMENT_CONFOUNDER,
    INPUTS_MOVED,
    KERNEL_CODE_MOVED,
    STRONG,
    SUGGESTIVE,
    UNSUPPORTED_COMBINATION,
    Cause,
    Figure,
    Ruled,
)
from reports.attribute.observed import MIXED, NEITHER, OBJECT, PLACE, Swap
from reports.compare.differences import VARIABLE
from reports.compare.factors import DIFFERS, SAME, UNKNOWN
from reports.model import Seen


def inputs_moved(case: Case) -> Cause | None:
    cells = [cell for cell in case.cells if cell.inputs.state == DIFFERS]
    if not cells or case.alone:
        return None
    return make(
        case,
        INPUTS_MOVED,
        DECISIVE,
        "The inputs are not the same bytes in both environments, so their results answer different questions.",
        cells,
        [Seen(text=f"{cell.workload}: {cell.inputs.seen.text}", record=cell.inputs.seen.record) for cell in cells[:6]],
        figures=[figures.cells_figure("Trials within tolerance, on other inputs", cells)],
        gist=("inputs", case.environment),
    )


def broken_environment(case: Case) -> Cause | None:
    for stack in reversed(case.stacks):
        if stack is not None and stack.status != "ok":
            return make(
                case,
                ENVIRONMENT_CONFOUNDER,
                DECISIVE,
                f"{stack.id} is not the environment that was asked for, so nothing of it was measured: "
                f"{stack.message or stack.status.replace('_', ' ')}",
                case.cells,
                [Seen(text=stack.message or stack.status, record=f"environments/{stack.id}.json")],
                gist=("environment", stack.id),
            )
    return None


def build_failed(case: Case) -> Cause | None:
    """By the same compiler, with the same flags, only PyTorch's own headers and libraries are left to differ."""
    base, this = case.builds
    cells = [cell for cell in case.cells if "build_failed" in (cell.sides[0].status, cell.sides[1].status)]
    failed = [build for build in (this, base) if build is not None and build.status == "build_failed"]
    if not cells or len(failed) != 1 or case.alone:
        return None
    where = "here" if failed[0] is this else "in the baseline"
    pointer = case.evidence.build_pointer(failed[0].environment, case.kernel, case.device)
    known = all(build is not None and build.compiler and build.flags for build in case.builds)
    alike = known and not case.build_inputs and "error:" in failed[0].message
    said = f"{case.kernel} does not build {where}, and does in the other environment"
    return make(
        case,
        UNSUPPORTED_COMBINATION if alike else BUILD_MOVED,
        DECISIVE,
        f"{said}: its sources ask for what that PyTorch does not have." if alike else f"{said}.",
        cells,
        [Seen(text=failed[0].message or "the build failed", record=pointer), *case.build_inputs],
        ruled=[
            Ruled(rival="the kernel's results", how="there are none to compare", record=pointer),
            Ruled(rival="compiler and flags", how="the same in both builds", record=pointer) if alike else None,
        ],
        measured=True,
    )


def moved_cells(case: Case) -> list[Cell]:
    """Whose verdict moved, by their own bits, on the same inputs and under the same yardstick; or whose process died on
    one side, as its object code was seen to do when each ran in both."""
    return [
        cell
        for cell in case.moved
        if cell.inputs.state == SAME and cell.yardstick.state == SAME and cell.bits.state == DIFFERS
    ] + [cell for cell in case.cells if _dies_on_one_side(cell)]


def _dies_on_one_side(cell: Cell) -> bool:
    if cell.swap is None or cell.swap.follows is None or any(side.status == protocol.NOT_RUN for side in cell.sides):
        return False
    return [died(side) for side in cell.sides].count(True) == 1 and cell.inputs.state != DIFFERS


def swap_of(case: Case) -> tuple[Cell, Swap] | None:
    """The first of the moved cells whose object code ran in both environments. What did not fail there as it did in
    validation tells nothing of why it failed."""
    found = [(cell, cell.swap) for cell in moved_cells(case) if cell.swap is not None]
    return next(((cell, _as_moved(cell, swap)) for cell, swap in found if swap.follows is not None), None)


def _as_moved(cell: Cell, swap: Swap) -> Swap:
    """What it tells of this cell. Of objects that are right, and not as exact, other bits are all that is asked."""
    if cell.verdict in model.EXACTNESS:
        return replace(swap, follows=swap.bits)
    return swap if _met(cell, swap) else replace(swap, follows=NEITHER)


def _met(cell: Cell, swap: Swap) -> bool:
    """Whether each object at home is right more often where validation was."""
    home, away = (swap.cells[name, name] for name in (cell.row.baseline, cell.row.environment))
    one, two = (-1.0 if died(each) else each.passed / max(1, each.runs) for each in (home, away))
    worse = cell.sides[1] if cell.verdict == model.REGRESSED or died(cell.sides[1]) else cell.sides[0]
    return one > two if worse is cell.sides[1] else one < two


def build_differences(case: Case) -> list[Seen]:
    base, this = case.builds
    found = list(case.build_inputs)
    one, two = build_flags(base), build_flags(this)
    if one != two and not found and base is not None and this is not None:
        gone, new = (" ".join(sorted(flags)) or "nothing" for flags in (one - two, two - one))
        text = f"build.ninja: gone {gone}; new {new}"
        found.append(Seen(text=text, record=case.evidence.build_pointer(this.environment, case.kernel, case.device)))
    return found


SWAPPED = {
    OBJECT: "right and wrong go with the object code, wherever it runs",
    PLACE: "right and wrong go with the environment that runs it, whichever object code it is",
    NEITHER: "called by itself, its object code does not fail as it did in validation",
    MIXED: "right and wrong go with neither the object code nor the environment alone",
}


def _swap_seen(case: Case) -> list[Seen]:
    found = swap_of(case)
    if found is None:
        return []
    cell, swap = found
    names = [name for each in swap.cells.values() for name in each.runtime.split(", ") if name]
    loaded = f" (runtime libraries: {listed(names, most=6)})" if names else ""
    return [Seen(text=f"{cell.workload}: {SWAPPED[swap.follows or MIXED]}{loaded}", record=swap.path)]


def _figures(case: Case, cells: list[Cell]) -> list[Figure | None]:
    found = swap_of(case)
    swapped = figures.swap_figure(found[1], case.baseline, case.environment) if found else None
    return [swapped, figures.cells_figure("Trials within tolerance", cells)]


def _moved_seen(cells: list[Cell]) -> list[Seen]:
    return [
        Seen(
            text=f"{cell.workload}: {cell.row.correctness.why}"
            + (f"; {cell.bits.seen.text}" if cell.bits.state != UNKNOWN else "")
            + "".join(map(last_words, cell.sides)),
            record=cell.record,
        )
        for cell in cells[:4]
    ]


def _rivals(case: Case, cells: list[Cell]) -> list[Ruled | None]:
    return [
        ruled("the inputs", cells[0].inputs),
        ruled("the truth and the tolerance", cells[0].yardstick),
        excluded("a race", case.steady[0] if case.steady else None),
        excluded("uninitialised memory", case.memory_clean),
        excluded("what ran before", case.predecessor_clean),
    ]


HEADERS = Seen(
    text="not excluded: PyTorch's headers, which its objects hold and which differ between versions, and the operators "
    "that it calls"
)


def _code_moved(case: Case, wanted: str) -> Cause | None:
    cells = moved_cells(case)
    if not cells or not case.is_kernel or case.code.state != DIFFERS:
        return None
    found = swap_of(case)
    follows = found[1].follows if found else None
    if follows in (PLACE, MIXED, NEITHER):
        return None
    differences = build_differences(case)
    if bool(differences) != (wanted == BUILD_MOVED):
        return None
    headers = wanted == KERNEL_CODE_MOVED and (
        case.brings_code or any(build and build.binds_itself for build in case.builds)
    )
    if follows == OBJECT:
        grade = DECISIVE if case.memory_clean or not case.unsteady else STRONG
    else:
        grade = STRONG if case.memory_clean and not case.unsteady and not headers else SUGGESTIVE
    why = (
        "it was built otherwise here, to other machine code, and the result goes with that"
        if wanted == BUILD_MOVED
        else "its Python file compiles or loads other machine code here, and the result goes with that"
        if case.brings_code
        else "its source compiles to other machine code here, by the same compiler with the same flags, and the "
        "result goes with that"
    )
    if _dies_on_one_side(cells[0]):
        here = "dies here" if died(cells[0].sides[1]) else "no longer dies here"
    else:
        here = became(cells[0])
    return make(
        case,
        wanted,
        grade,
        f"{case.kernel} {here} because of its code: {why}.",
        cells,
        [*_moved_seen(cells), case.code.seen, *differences, *_swap_seen(case), *([HEADERS] if headers else [])],
        ruled=[
            *_rivals(case, cells),
            Ruled(rival="what runs around the kernel", how=SWAPPED[OBJECT], record=found[1].path)
            if found and follows == OBJECT
            else None,
            Ruled(rival="compiler and flags", how="the same in both builds", record=case.code.seen.record)
            if not differences and not case.brings_code
            else None,
        ],
        command=case.explain(cells),
        figures=_figures(case, cells),
    )


def build_moved(case: Case) -> Cause | None:
    return _code_moved(case, BUILD_MOVED)


def kernel_code_moved(case: Case) -> Cause | None:
    return _code_moved(case, KERNEL_CODE_MOVED)


def environment_confounder(case: Case) -> Cause | None:
    """The result goes with where the kernel runs. Without swapped object code that is said only where the code is the
    same, and memory was tried."""
    cells = moved_cells(case)
    if not cells or not case.is_kernel or variables.matter(case):
        return None
    found, differences = swap_of(case), variables.left(case)
    follows = found[1].follows if found else None
    if follows == PLACE:
        grade = DECISIVE if case.memory_clean and not case.unsteady else STRONG
    elif follows is not None or case.unsteady:
        return None
    elif case.code.state == SAME and case.memory_clean:
        grade = STRONG
    elif case.code.state == SAME and any(each.kind == VARIABLE for each in differences):
        grade = SUGGESTIVE  # it may be what brings out a fault that was there before
    elif case.one_torch and differences and case.code.state in (SAME, UNKNOWN):
        grade = STRONG if case.memory_clean else SUGGESTIVE
    else:
        return None
    said = [each.text for each in differences] or ["nothing that is recorded, besides PyTorch's own version"]
    return make(
        case,
        ENVIRONMENT_CONFOUNDER,
        grade,
        f"{case.kernel}'s result goes with the environment that runs it, not with its code. What differs: "
        f"{listed(said)}.",
        cells,
        [*_moved_seen(cells), case.code.seen, *_swap_seen(case), *(Seen(text=each.text) for each in differences[:8])],
        ruled=[
            *_rivals(case, cells),
            ruled("the kernel's code and build", case.code),
            Ruled(rival="PyTorch's version", how="both environments hold the very same PyTorch")
            if case.one_torch
            else None,
        ],
        command=case.explain(cells),
        figures=_figures(case, cells),
    )
