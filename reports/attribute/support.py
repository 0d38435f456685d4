"""Rules for what PyTorch refuses in one version or in all, and for kernels that ask for it. Pure."""

from __future__ import annotations

from harness.worker import protocol
from reports import model
from reports.attribute.cases import Case
from reports.attribute.cells import Cell
from reports.attribute.making import dtypes_of, listed, make, ruled
from reports.attribute.messages import in_first_trial, lacks_code, raised, raises, refused
from reports.attribute.model import DECISIVE, STRONG, UNSUPPORTED_COMBINATION, Cause, Entry, Figure, Ruled
from reports.compare.factors import DIFFERS
from reports.model import Seen


def refused_by_itself(case: Case) -> Cause | None:
    """The kernel gives its interface's code for what it has no code for, in every environment. In one alone it is told
    with other exceptions."""
    if not case.is_kernel:
        return None
    cells = [cell for cell in case.cells if all(map(refused, cell.sides))]
    if not cells:
        return None
    said = cells[0].sides[1].message
    return make(
        case,
        UNSUPPORTED_COMBINATION,
        STRONG,
        f"{case.kernel} refuses by itself what it is asked for{'' if case.alone else ', in both environments'}: {said}",
        cells,
        [
            Seen(text=f"{cell.workload} in {side.environment}: {side.message}", record=side.record)
            for cell in cells[:4]
            for side in cell.sides
        ],
        ruled=[
            Ruled(rival="the upgrade", how="the baseline refuses alike", record=cells[0].sides[0].record)
            if not case.alone
            else None,
            Ruled(rival="a wrong result", how="by its interface, such a code is given before anything is computed"),
        ],
    )


def refused_by_error(case: Case) -> Cause | None:
    """It ends with PyTorch's words for a combination that it has no code for, in one environment or in all."""
    if not case.is_kernel:
        return None
    cells = [cell for cell in case.cells if any(lacks_code(side) for side in cell.sides)]
    if not cells:
        return None
    cell = cells[0]
    without = [side for side in cell.sides if lacks_code(side)]
    others = _references_refuse(cell)
    here = [lacks_code(side) for side in cell.sides]
    where = "in both environments" if all(here) else "here" if here[1] else "in the baseline"
    return make(
        case,
        UNSUPPORTED_COMBINATION,
        DECISIVE if others else STRONG,
        f"{case.kernel} asks {where} for what PyTorch has no code for there: {without[-1].message}",
        cells,
        [Seen(text=f"{each.environment}: {each.message}", record=each.record) for each in without] + others,
        ruled=[Ruled(rival="a change of results", how="there are none on one side to compare")],
    )


def raises_on_one_side(case: Case) -> Cause | None:
    """In one environment every call ends with the same exception of Python's, on inputs that did not move: the kernel,
    or what it calls there, refuses them. A signal, or an exception that comes and goes, says nothing of the kind."""
    if not case.is_kernel or case.alone:
        return None
    found = []
    for cell in case.cells:
        raising = [number for number in (0, 1) if _always_raises(cell, number)]
        if len(raising) == 1 and cell.sides[1 - raising[0]].status in protocol.RAN:
            found.append((cell, raising[0]))
    if not found:
        return None
    cell, number = found[0]
    cells = [each for each, which in found if which == number]
    side = cell.sides[number]
    return make(
        case,
        UNSUPPORTED_COMBINATION,
        STRONG,
        f"{case.kernel} is refused {'here' if number else 'in the baseline'}, and not in the other environment: "
        f"{side.message}",
        cells,
        [
            *(Seen(text=f"{each.workload}: {each.sides[number].message}", record=side.record) for each in cells[:4]),
            Seen(text="so does every call that was tried there, in whichever process and on whichever inputs"),
            cell.inputs.seen,
        ],
        ruled=[
            ruled("the inputs", cell.inputs),
            Ruled(rival="a fault in memory", how="the same exception each time, and no signal", record=side.record),
            Ruled(rival="a change of results", how="there are none on one side to compare"),
        ],
        command=case.explain(cells),
    )


def _always_raises(cell: Cell, number: int) -> bool:
    """Whether the first trial of every recipe raised the same exception there, and each call of an experiment."""
    side, said = cell.sides[number], raised(cell.sides[number])
    if not said or lacks_code(side):
        return False
    validated = [(result.status, result.message) for _, result in cell.results(number)]
    tried = [
        (result.status, result.message)
        for conditions in cell.conditions
        if conditions.record.environment == side.environment
        for result in conditions.record.results
        if result.status not in (protocol.NOT_RUN, protocol.UNSUPPORTED)
        and not (result.condition.variables_of or result.condition.dtype or result.condition.integers)
        and result.condition.gpu == "current"
    ]
    first = all(in_first_trial(message) for _, message in validated)
    same = all(status == protocol.CRASHED and raises(message, said) for status, message in (*validated, *tried))
    return cell.inputs.state != DIFFERS and bool(validated) and first and same


def _references_refuse(cell: Cell) -> list[Seen]:
    """PyTorch's own references that are refused where the kernel is."""
    found = []
    for number, side in enumerate(cell.sides):
        record = cell.validations[number]
        if record is None or not lacks_code(side):
            continue
        names = [each for recipe in record.recipes for each in recipe.targets if each.status == protocol.UNSUPPORTED]
        found += [
            Seen(text=f"{each.target} is refused there too: {each.message}", record=side.record) for each in names
        ]
    return list(dict.fromkeys(found))[:2]


REFUSED = {
    model.NEWLY_SUPPORTED: "is refused in the baseline, and accepted here",
    model.NO_LONGER_SUPPORTED: "is accepted in the baseline, and refused here",
}


def unsupported(case: Case) -> Cause | None:
    """Refused by one version, or, of a kernel, by all. What no version's reference supports moved nothing."""
    cells = [
        cell
        for cell in case.cells
        if cell.verdict in REFUSED
        or (case.is_kernel and cell.verdict == model.UNSUPPORTED)
        or (case.is_kernel and case.alone and cell.sides[1].status == protocol.UNSUPPORTED)
        or (cell.verdict == model.FAILING and cell.sides[0].status == protocol.UNSUPPORTED)
    ]
    if not cells:
        return None
    verdict = cells[0].verdict
    cells = [cell for cell in cells if cell.verdict == verdict]
    said = REFUSED.get(verdict, "is refused in every environment")
    evidence, statuses = [], []
    for cell in cells[:4]:
        side = next(side for side in cell.sides if side.status == protocol.UNSUPPORTED)
        message = side.message or "refused"
        evidence.append(Seen(text=f"{cell.workload}, {case.kernel or case.reference}: {message}", record=side.record))
        statuses.append(
            (
                cell.workload,
                tuple(
                    Entry(text=side.status.replace("_", " "), state="good" if side.status == "ok" else "bad")
                    for side in cell.sides
                ),
            )
        )
    dtypes = dtypes_of(case, cells)
    who = case.kernel or "PyTorch's own attention"
    return make(
        case,
        UNSUPPORTED_COMBINATION,
        DECISIVE,
        f"{who} {said}: {dtypes or listed(cell.workload for cell in cells)} on {case.device}.",
        cells,
        evidence,
        ruled=[Ruled(rival="a change of results", how="there are none on one side to compare")],
        figures=[Figure(title="Supported", columns=("baseline", "here"), rows=tuple(statuses))],
        gist=("unsupported", case.kernel, said, dtypes, case.device),
    )
