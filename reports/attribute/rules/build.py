"""Rules for what differs between the two environments besides PyTorch itself: inputs, builds, code and surroundings.

Object code that was built in one environment and run in the other holds one of the two fixed, as variables do that were
tried both ways; without that, a hash of the disassembly says whether the code moved at all.
"""

from __future__ import annotations

from reports.attribute import causes, figures
from reports.attribute.causes import DECISIVE, STRONG, SUGGESTIVE, Cause, Figure, RuledOut
from reports.attribute.evidence import became, ended, excluded, in_words, listed, steady_rivals, where_all
from reports.attribute.facts.cases import CaseFacts
from reports.attribute.facts.cells import CellFacts
from reports.attribute.facts.messages import asserted, compiler_refuses, died
from reports.attribute.facts.swaps import MIXED, NEITHER, OBJECT, PLACE, VARIABLES
from reports.attribute.wording import make
from reports.compare.differences import VARIABLE
from reports.compare.factors import DIFFERS, SAME, UNKNOWN
from reports.model import Seen


def inputs_moved(case: CaseFacts) -> Cause | None:
    cells = [cell for cell in case.cells if cell.inputs.state == DIFFERS]
    if not cells or case.alone:
        return None
    return make(
        case,
        causes.INPUTS_MOVED,
        DECISIVE,
        "inputs_moved",
        cells,
        [cell.seen(cell.inputs.seen.text, cell.inputs.seen.record) for cell in cells[:6]],
        figures=[figures.cells_figure("Trials within tolerance, on other inputs", cells)],
        group=("inputs", case.environment),
    )


def broken_environment(case: CaseFacts) -> Cause | None:
    stack = next((stack for stack in reversed(case.stacks) if stack is not None and stack.status != "ok"), None)
    if stack is None:
        return None
    return make(
        case,
        causes.ENVIRONMENT_CONFOUNDER,
        DECISIVE,
        "broken_environment",
        case.cells,
        [Seen(text=stack.message or stack.status, record=f"environments/{stack.id}.json")],
        group=("environment", stack.id),
        environment=stack.id,
        why=stack.message or stack.status.replace("_", " "),
    )


def build_failed(case: CaseFacts) -> Cause | None:
    """By the same compiler, with the same flags, only PyTorch's own headers and libraries are left to differ."""
    cells = [cell for cell in case.cells if "build_failed" in (cell.sides[0].status, cell.sides[1].status)]
    failed = [build for build in case.builds if build is not None and build.status == "build_failed"]
    if not cells or len(failed) != 1 or case.alone or case.refused:
        return None
    (build,) = failed
    pointer = case.evidence.build_pointer(build.environment, case.kernel, case.device)
    known = all(build is not None and build.compiler and build.flags for build in case.builds)
    alike = known and not case.build_inputs and compiler_refuses(build)
    return make(
        case,
        causes.UNSUPPORTED_COMBINATION if alike else causes.BUILD_MOVED,
        DECISIVE,
        "build_refused" if alike else "build_failed",
        cells,
        [Seen(text=build.message or "the build failed", record=pointer), *case.build_inputs],
        ruled_out=[
            RuledOut(rival="the kernel's results", how="there are none to compare", record=pointer),
            RuledOut(rival="compiler and flags", how="the same in both builds", record=pointer) if alike else None,
        ],
        measured=True,
        where=f"in {case.versions[build is case.builds[1]]}",
    )


def does_not_build(case: CaseFacts) -> Cause | None:
    """In no environment that is compared here."""
    cells = case.unbuilt
    if not cells or not case.is_kernel:
        return None
    failed = {build.environment: build for build in case.builds if build is not None}
    builds = list(failed.values())
    pointers = [case.evidence.build_pointer(build.environment, case.kernel, case.device) for build in builds]
    message = builds[-1].message or "the build failed"
    alike = RuledOut(rival="the upgrade", how=f"{case.versions[0]} fails alike", record=pointers[0])
    return make(
        case,
        causes.DOES_NOT_BUILD,
        STRONG,
        "does_not_build",
        cells,
        [
            Seen(text=f"{build.environment}: {build.message or 'the build failed'}", record=pointer)
            for build, pointer in zip(builds, pointers, strict=True)
        ],
        ruled_out=[None if case.alone else alike],
        group=("does not build", case.kernel, message),
        where=where_all(case),
        message=ended(message),
    )


SWAPPED = {
    OBJECT: "right or wrong depends on the object code, in whichever environment it runs",
    PLACE: "right or wrong depends on the environment that runs it, whichever object code runs",
    NEITHER: "called by itself, its object code does not fail as it did in validation",
    MIXED: "right or wrong depends on neither the object code nor the environment alone",
}
HEADERS = Seen(
    text="not excluded: PyTorch's headers, whose code is compiled into it and differs between versions, and the "
    "operators that it calls"
)


def _swap_seen(case: CaseFacts) -> list[Seen]:
    if case.swap is None:
        return []
    cell, swap = case.swap
    names = [name for each in swap.cells.values() for name in each.runtime.split(", ") if name]
    loaded = f" (runtime libraries: {listed(names, most=6)})" if names else ""
    return [cell.seen(f"{SWAPPED[swap.follows or MIXED]}{loaded}", swap.path)]


def _figures(case: CaseFacts, cells: list[CellFacts]) -> list[Figure | None]:
    swapped = figures.swap_figure(case.swap[1], *case.environments) if case.swap else None
    return [swapped, figures.cells_figure("Trials within tolerance", cells)]


def _moved_seen(cells: list[CellFacts]) -> list[Seen]:
    return [
        cell.seen(
            cell.row.correctness.why
            + (f"; {cell.bits.seen.text}" if cell.bits.state != UNKNOWN else "")
            + "".join(f"; its last assertion: {text[-200:]}" for text in map(asserted, cell.sides) if text)
        )
        for cell in cells[:4]
    ]


def _rivals(case: CaseFacts, cells: list[CellFacts]) -> list[RuledOut | None]:
    yardstick = excluded("the truth and the tolerance", cells[0].yardstick)
    return [excluded("the inputs", cells[0].inputs), yardstick, *steady_rivals(case)]


def code_moved(case: CaseFacts) -> Cause | None:
    cells, follows = case.moved_by_itself, case.swap[1].follows if case.swap else None
    if not cells or not case.is_kernel or case.code.state != DIFFERS or follows in (PLACE, MIXED, NEITHER):
        return None
    differences = case.build_differences
    headers = not differences and (case.brings_code or any(build and build.binds_itself for build in case.builds))
    if follows == OBJECT:
        grade = DECISIVE if case.memory_clean or not case.unsteady else STRONG
    else:
        grade = STRONG if case.memory_clean and not case.unsteady and not headers else SUGGESTIVE
    died_here = f"{'dies' if died(cells[0].sides[1]) else 'no longer dies'} in {case.versions[1]}"
    swapped = Seen(text=SWAPPED[OBJECT], record=case.swap[1].path) if case.swap and follows == OBJECT else None
    compiler = RuledOut(rival="compiler and flags", how="the same in both builds", record=case.code.seen.record)
    return make(
        case,
        causes.BUILD_MOVED if differences else causes.KERNEL_CODE_MOVED,
        grade,
        "build_moved" if differences else "loaded_code_moved" if case.brings_code else "source_compiles_otherwise",
        cells,
        [*_moved_seen(cells), case.code.seen, *differences, *_swap_seen(case), *([HEADERS] if headers else [])],
        ruled_out=[
            *_rivals(case, cells),
            excluded("what runs around the kernel", swapped),
            compiler if not differences and not case.brings_code else None,
        ],
        figures=_figures(case, cells),
        what=died_here if cells[0].dies_on_one_side else became(cells[0]),
        differences=in_words(differences),
    )


OF_WHEELS = "torch_cuda"  # what differs between two of PyTorch's own wheels, whichever version they are


def environment_confounder(case: CaseFacts) -> Cause | None:
    """The result goes with where the kernel runs. Without swapped object code that is said only where the code is the
    same, and memory was tried."""
    cells, follows = case.moved_by_itself, case.swap[1].follows if case.swap else None
    if not cells or not case.is_kernel or case.variables_matter:
        return None
    differences = case.differences_left
    if follows == PLACE:
        grade = DECISIVE if case.memory_clean and not case.unsteady else STRONG
    elif follows is not None or case.unsteady:
        return None
    elif case.code.state == SAME and case.memory_clean:
        of_wheels = bool(differences) and all(each.kind == OF_WHEELS for each in differences)
        grade = SUGGESTIVE if of_wheels else STRONG  # another version is nearly always built for another CUDA
    elif case.code.state == SAME and any(each.kind == VARIABLE for each in differences):
        grade = SUGGESTIVE  # it may be what brings out a fault that was there before
    elif case.one_torch and differences and case.code.state in (SAME, UNKNOWN):
        grade = STRONG if case.memory_clean else SUGGESTIVE
    else:
        return None
    torch = RuledOut(rival="PyTorch's version", how="both environments hold the very same PyTorch")
    names = [each.text for each in differences] or ["nothing recorded but PyTorch's own version"]
    return make(
        case,
        causes.ENVIRONMENT_CONFOUNDER,
        grade,
        "environment_confounder",
        cells,
        [*_moved_seen(cells), case.code.seen, *_swap_seen(case), *(Seen(text=each.text) for each in differences[:8])],
        ruled_out=[
            *_rivals(case, cells),
            excluded("the kernel's code and build", case.code),
            torch if case.one_torch else None,
        ],
        figures=_figures(case, cells),
        differences=listed(names),
    )


SAME_BINARY = {
    False: "the same binary in the same environment is right with one set and wrong with the other",
    True: "the same binary in the same environment gives other bits with the other set",
}


def variables_decide(case: CaseFacts) -> Cause | None:
    """The result goes with the variables, in both environments or in one of them."""
    if case.variable_trials is None or not case.variables_matter:
        return None
    cell, trials = case.variable_trials
    names = [each.text for each in case.variables]
    follows = trials.follows == VARIABLES
    runs = trials.seen(lambda where, whose: f"in {where} with the variables of {whose}")
    grade = DECISIVE if follows else STRONG
    if case.unsteady:
        grade = STRONG if case.fault_comes_with_variables else SUGGESTIVE
    return make(
        case,
        causes.ENVIRONMENT_CONFOUNDER,
        grade,
        "variables_decide",
        case.failing or [cell],
        [cell.why, *(Seen(text=text) for text in names), cell.seen(runs, trials.path)],
        ruled_out=[
            RuledOut(
                rival="the kernel's code, the build and PyTorch's version",
                how=SAME_BINARY[trials.by_bits],
                record=trials.path,
            )
        ],
        command=case.explain([cell]),
        figures=[figures.crossed_figure(trials)],
        variables=listed(names),
        where="in both environments, whichever PyTorch and code they have" if follows else "in one of the environments",
    )
