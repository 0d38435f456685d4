"""Rules for faults in a kernel's memory: what it reads that it should not, and when. Each takes a case, and gives a
cause or None.

Uninitialised memory and a race look alike from outside: both give other bits from call to call. They part where the
memory is filled: what a kernel reads uninitialised then repeats itself and follows the filling; a race does neither.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.schema.experiment_records import ConditionResult
from harness.worker import protocol
from reports.attribute import figures, thresholds
from reports.attribute.cases import Case
from reports.attribute.cells import Cell
from reports.attribute.making import (
    excluded,
    finding_seen,
    findings_of,
    hidden,
    listed,
    make,
    silence_on,
    spread_seen,
)
from reports.attribute.messages import faulted, outlived
from reports.attribute.model import (
    BUILD_MOVED,
    DECISIVE,
    KERNEL_CODE_MOVED,
    OUT_OF_BOUNDS,
    RACE,
    STRONG,
    UNINITIALISED_GLOBAL,
    UNINITIALISED_HOST,
    UNINITIALISED_SHARED,
    Cause,
    Figure,
    Ruled,
)
from reports.attribute.observed import Spread
from reports.model import Seen


def class_of(site: str, device: str) -> str:
    """A tensor's memory is the device's own: on a CPU it is the host's."""
    if site == "shared":
        return UNINITIALISED_SHARED
    return UNINITIALISED_GLOBAL if device == "cuda" and site in ("output", "workspace") else UNINITIALISED_HOST


def _proven_out_of_bounds(case: Case) -> bool:
    return any(finding.proven for _, finding in findings_of(case, "out_of_bounds"))


def _left_by(cells: Sequence[Cell]) -> tuple[list[Seen], list[Figure]]:
    """What is read is what ran before left: errors of another size after others are that, seen from outside."""
    seen, drawn = [], []
    for cell in cells:
        for spread in cell.predecessors:
            ran = [result for result in spread.results if result.runs]
            sizes = [result.max_units for result in ran if result.max_units]
            if not sizes or max(sizes) < thresholds.FAR_APART * min(sizes):
                continue
            told = ", ".join(f"{result.condition.label} {_size(result)}" for result in ran)
            where = f"{cell.workload} in {spread.environment}"
            seen.append(Seen(text=f"{where}: largest error in units, by what ran before: {told}", record=spread.path))
            drawn.append(figures.spread_figure(f"{cell.workload}: what ran before", spread))
    return seen[-1:], drawn[-1:]


def _size(result: ConditionResult) -> str:
    return f"{result.max_units:.3g}" if result.max_units is not None else "NaN"


BEYOND = Seen(text="not excluded: it reads beyond its tensors, where such memory lies too; no checker could tell")


def _uninitialised(case: Case, wanted: str) -> Cause | None:
    spreads = [
        (cell, spread)
        for cell, spread in case.poison
        if spread.follows and class_of(spread.site, case.device) == wanted
    ]
    tensor_class = class_of("output", case.device)
    left = [cell for cell in case.cells if wanted == tensor_class and any(side.unwritten_trials for side in cell.sides)]
    checked = findings_of(case, "uninitialised") if wanted == tensor_class else []
    if not spreads and not left and not checked:
        return None
    if not checked and all(spread.site == "output" for _, spread in spreads) and _first_call_writes(case):
        return None
    if wanted != UNINITIALISED_SHARED and _proven_out_of_bounds(case):
        return None  # what lies beyond a buffer was filled too
    cells = list(dict.fromkeys([cell for cell, _ in (*spreads, *checked)] + left))
    evidence = [spread_seen(cell, spread) for cell, spread in spreads]
    evidence += [finding_seen(finding) for _, finding in checked]
    before, drawn = _left_by(cells)
    evidence += [*before, *hidden(cells)]
    for cell in left:
        trials = max(side.unwritten_trials for side in cell.sides)
        text = f"{cell.workload}: {trials} trials left what was in the output before"
        evidence.append(Seen(text=text, record=cell.record))
    repeatable = [spread for _, spread in spreads if spread.moves and spread.systematic and spread.settled]
    alone = any(spread.site in ("shared", "output") for spread in repeatable)
    within = silence_on(case, "out_of_bounds")
    certain = any(finding.proven for _, finding in checked) or bool(repeatable and (alone or within))
    return make(
        case,
        wanted,
        DECISIVE if certain else STRONG,
        _uninitialised_statement(case, wanted, [spread for _, spread in spreads], bool(left)),
        cells,
        evidence if certain or not spreads else [*evidence, BEYOND],
        ruled=[
            Ruled(
                rival="a race",
                how="under each filling alone the bits repeat; only another filling gives others",
                record=repeatable[0].path,
            )
            if repeatable
            else None,
            Ruled(
                rival="PyTorch's version and the build",
                how="one process, one binary and the same input bytes gave all of these outputs",
                record=spreads[0][1].path,
            )
            if spreads
            else None,
            excluded("out of bounds", within),
        ],
        command=case.explain(cells),
        figures=[
            *(figures.spread_figure(f"{cell.workload}: what was there before", s) for cell, s in spreads[:2]),
            *drawn,
        ],
    )


def _first_call_writes(case: Case) -> bool:
    """Whether a process's first call is right, into an output that is poisoned as any other: it writes all of it. If
    later ones do not, that comes from what the kernel keeps, and their outputs only show it."""
    told = [history for cell in case.cells for history in cell.histories]
    return bool(told) and all(history.first_right for history in told)


def _uninitialised_statement(case: Case, wanted: str, spreads: list[Spread], left: bool) -> str:
    kind = {
        UNINITIALISED_SHARED: "shared memory",
        UNINITIALISED_GLOBAL: "device memory",
        UNINITIALISED_HOST: "host memory",
    }[wanted]
    if not spreads and left:
        return f"{case.kernel} leaves part of its output unwritten: what stands there is what was in {kind} before."
    said = f"{case.kernel} reads {kind} that it has not written: its output follows what was left there."
    if spreads and not any(spread.fails for spread in spreads):
        said += " No run failed for it yet."
    return said


def out_of_bounds(case: Case) -> Cause | None:
    checked = findings_of(case, "out_of_bounds")
    crashed = [cell for cell in case.cells if any(map(faulted, cell.sides))]
    silent = silence_on(case, "out_of_bounds")
    kept = any(spread.follows for _, spread in case.predecessors) or case.keeps_state  # met again by place
    shifted = [] if silent or kept else [(cell, path) for cell in case.cells if (path := _offset_matters(cell))]
    if not checked and not crashed and not shifted:
        return None
    if not case.is_kernel:
        return None
    cells = list(dict.fromkeys([cell for cell, _ in (*checked, *shifted)] + crashed))
    evidence = [finding_seen(finding) for _, finding in checked]
    for cell in crashed:
        side = next(side for side in reversed(cell.sides) if side.status == protocol.CRASHED)
        evidence.append(Seen(text=f"{cell.workload}: {side.message}", record=side.record))
    evidence += [
        Seen(text=f"{cell.workload}: right where tensors begin their allocation, wrong where they do not", record=path)
        for cell, path in shifted
    ]
    evidence += [
        spread_seen(cell, spread) for cell, spread in case.poison if spread.follows and spread.site != "shared"
    ]
    evidence += hidden(cells)
    proven = _proven_out_of_bounds(case)
    return make(
        case,
        OUT_OF_BOUNDS,
        DECISIVE if proven else STRONG,
        f"{case.kernel} reads or writes memory "
        + ("whose time is over" if _outlived(case) else "beyond its tensors")
        + (f", on {listed(cell.workload for cell in cells)}." if len(cells) < len(case.cells) else "."),
        cells,
        evidence,
        ruled=[
            Ruled(
                rival="uninitialised memory",
                how="the checker names the access; what was read there belongs to nobody",
                record=checked[0][1].path,
            )
            if proven
            else None,
            excluded("a race", silence_on(case, "race")),
        ],
        command=case.explain(cells),
        figures=[_masks_figure(cell) for cell, _ in shifted[:1]]
        or [figures.spread_figure(f"{cell.workload}: what lies around", s) for cell, s in case.poison if s.follows][:1],
    )


def _outlived(case: Case) -> bool:
    """Whether all that checkers name is memory that was there, and is no longer."""
    found = [finding.finding for _, finding in findings_of(case, "out_of_bounds")]
    return bool(found) and all(map(outlived, found))


def follows(case: Case, cause: Cause, found: Sequence[Cause]) -> bool:
    """Whether a fault in memory is not why the result moved. A variable that a thread meets too late is what a race
    makes of it. And where another build of the same sources was seen to bring the failure, wherever it ran, an access
    that a checker names is there; only one that the outputs were seen to follow is shown to be what fails."""
    if cause.cause != OUT_OF_BOUNDS:
        return False
    proven = {other.cause for other in found if other.grade == DECISIVE}
    if _outlived(case):
        return RACE in proven
    varied = any(spread.follows for _, spread in case.poison) or any(_offset_matters(cell) for cell in case.cells)
    return not varied and bool({BUILD_MOVED, KERNEL_CODE_MOVED} & proven)


def _masks_figure(cell: Cell) -> Figure | None:
    for conditions in cell.masks:
        return figures.conditions_figure(f"{cell.workload}: other inputs", conditions.ran, conditions.path)
    return None


def _offset_matters(cell: Cell) -> str:
    """The record that shows the same elements right at an allocation's beginning, and wrong behind it."""
    for conditions in cell.masks:
        plain = {result.condition.recipe: result for result in conditions.as_laid_out}
        for result in conditions.ran:
            same = plain.get(result.condition.recipe)
            if result.condition.layout != "offset" or same is None:
                continue
            if same.runs and same.passed == same.runs and result.passed < result.runs:
                return conditions.path
    return ""


def uninitialised_shared(case: Case) -> Cause | None:
    return _uninitialised(case, UNINITIALISED_SHARED)


def uninitialised_global(case: Case) -> Cause | None:
    return _uninitialised(case, UNINITIALISED_GLOBAL)


def uninitialised_host(case: Case) -> Cause | None:
    return _uninitialised(case, UNINITIALISED_HOST)
