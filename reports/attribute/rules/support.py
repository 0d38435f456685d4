"""Rules for what PyTorch refuses in one version or in all, and for kernels that ask for it."""

from __future__ import annotations

from harness.worker import protocol
from reports import model
from reports.attribute import causes, figures
from reports.attribute.causes import DECISIVE, STRONG, Cause, RuledOut
from reports.attribute.evidence import ended, excluded, inputs_of, listed, where_all
from reports.attribute.facts.cases import CaseFacts
from reports.attribute.facts.cells import CellFacts
from reports.attribute.facts.messages import in_first_trial, lacks_code, raised, raises, refused
from reports.attribute.wording import make
from reports.compare.factors import DIFFERS
from reports.compare.rows import REFERENCE
from reports.model import Seen


def no_results(cell: CellFacts) -> RuledOut:
    refused = all(side.status not in protocol.RAN for side in cell.sides)
    where = "neither environment has" if refused else "one environment has no"
    return RuledOut(rival="a change of results", how=f"{where} results to compare")


def refused_by_itself(case: CaseFacts) -> Cause | None:
    """The kernel gives its interface's code for what it has no code for, in every environment. Where it does in one
    alone, that is an exception like others."""
    cells = [cell for cell in case.cells if all(map(refused, cell.sides))]
    if not case.is_kernel or not cells:
        return None
    alike = RuledOut(rival="the upgrade", how=f"{case.versions[0]} refuses alike", record=cells[0].sides[0].record)
    before = "by its interface, it returns such a code before it computes anything"
    return make(
        case,
        causes.UNSUPPORTED_COMBINATION,
        STRONG,
        "refused_by_itself",
        cells,
        [cell.seen_in(side.environment, side.message, side.record) for cell in cells[:4] for side in cell.sides],
        ruled_out=[None if case.alone else alike, RuledOut(rival="a wrong result", how=before)],
        where="" if case.alone else ", in both environments",
        message=cells[0].sides[1].message,
    )


def refused_by_error(case: CaseFacts) -> Cause | None:
    """It ends with PyTorch's words for a combination that it has no code for, in one environment or in all."""
    cells = [cell for cell in case.cells if any(map(lacks_code, cell.sides)) and cell not in case.own_errors]
    if not case.is_kernel or not cells:
        return None
    base, this = map(lacks_code, cells[0].sides)
    without = [side for side in cells[0].sides if lacks_code(side)]
    references = _references_refuse(cells[0])
    return make(
        case,
        causes.UNSUPPORTED_COMBINATION,
        DECISIVE if references else STRONG,
        "refused_by_error",
        cells,
        [*(Seen(text=f"{side.environment}: {side.message}", record=side.record) for side in without), *references],
        ruled_out=[no_results(cells[0])],
        where="in both environments" if base and this else f"in {case.versions[this]}",
        message=without[-1].message,
    )


def own_error(case: CaseFacts) -> Cause | None:
    """It raises in every environment what neither PyTorch nor its interface raises to refuse something."""
    cells = case.own_errors
    if not cells:
        return None
    side = cells[0].sides[1]
    alike = RuledOut(rival="the upgrade", how=f"{case.versions[0]} ends alike", record=cells[0].sides[0].record)
    return make(
        case,
        causes.OWN_ERROR,
        STRONG,
        "own_error",
        cells,
        [cell.seen_in(side.environment, side.message, side.record) for cell in cells[:4] for side in cell.sides],
        ruled_out=[None if case.alone else alike],
        group=("own error", case.kernel, side.message),
        where=where_all(case),
        message=ended(side.message),
    )


def raises_on_one_side(case: CaseFacts) -> Cause | None:
    """In one environment every call ends with the same exception of Python's, on inputs that did not move: the kernel,
    or what it calls there, refuses them. A signal, or an exception that comes and goes, says nothing of the kind."""
    found = []
    for cell in case.cells if case.is_kernel and not case.alone else ():
        raising = [number for number in (0, 1) if _always_raises(cell, number)]
        if len(raising) == 1 and cell.sides[1 - raising[0]].status in protocol.RAN:
            found.append((cell, raising[0]))
    if not found:
        return None
    cell, number = found[0]
    cells = [each for each, which in found if which == number]
    side = cell.sides[number]
    same = "the same exception each time, and no signal"
    where = f"in {case.versions[number]}"
    return make(
        case,
        causes.UNSUPPORTED_COMBINATION,
        STRONG,
        "raises_on_one_side",
        cells,
        [
            *(each.seen(each.sides[number].message, side.record) for each in cells[:4]),
            Seen(text=f"every call that was tried {where} does the same, in every process and on all inputs"),
            cell.inputs.seen,
        ],
        ruled_out=[
            excluded("the inputs", cell.inputs),
            RuledOut(rival="a fault in memory", how=same, record=side.record),
            no_results(cell),
        ],
        where=where,
        message=side.message,
    )


def _always_raises(cell: CellFacts, number: int) -> bool:
    """Whether the first trial of every recipe raised the same exception there, and each call of an experiment."""
    side, exception = cell.sides[number], raised(cell.sides[number])
    if not exception or lacks_code(side) or cell.inputs.state == DIFFERS:
        return False
    validated = [(result.status, result.message) for _, result in cell.results(number)]
    tried = [
        (result.status, result.message)
        for conditions in cell.experiments
        if conditions.environment == side.environment
        for result in conditions.record.results
        if result.status not in (protocol.NOT_RUN, protocol.UNSUPPORTED)
        and not (result.condition.variables_of or result.condition.told)
        and not result.condition.dtype
    ]
    first = all(in_first_trial(message) for _, message in validated)
    same = all(status == protocol.CRASHED and raises(message, exception) for status, message in (*validated, *tried))
    return bool(validated) and first and same


def _references_refuse(cell: CellFacts) -> list[Seen]:
    """PyTorch's own references that are refused where the kernel is."""
    found = [
        Seen(text=f"{target.target} is refused in {side.environment} too: {target.message}", record=side.record)
        for side, record in zip(cell.sides, cell.validations, strict=True)
        if record is not None and lacks_code(side)
        for recipe in record.recipes
        for target in recipe.targets
        if target.status == protocol.UNSUPPORTED
    ]
    return list(dict.fromkeys(found))[:2]


REFUSED = {
    model.NEWLY_SUPPORTED: "is refused in {} and accepted in {}",
    model.NO_LONGER_SUPPORTED: "is accepted in {} and refused in {}",
    model.FAILING: "is refused in {}, and wrong in {}",
}


def unsupported(case: CaseFacts) -> Cause | None:
    """Refused by one version, or, of a kernel, by all. What no version's reference supports moved nothing."""
    is_reference = case.rows[0].kind == REFERENCE
    cells = [
        cell
        for cell in case.cells
        if cell.verdict in (model.NEWLY_SUPPORTED, model.NO_LONGER_SUPPORTED)
        or (not is_reference and cell.verdict == model.UNSUPPORTED)
        or (not is_reference and case.alone and cell.sides[1].status == protocol.UNSUPPORTED)
        or (cell.verdict == model.FAILING and cell.sides[0].status == protocol.UNSUPPORTED)
    ]
    if not cells:
        return None
    verdict = cells[0].verdict
    cells = [cell for cell in cells if cell.verdict == verdict]
    how = REFUSED.get(verdict, "is refused in every environment").format(*case.versions)
    evidence = []
    for cell in cells[:4]:
        side = next(side for side in cell.sides if side.status == protocol.UNSUPPORTED)
        text = f"{cell.workload}, {case.kernel or case.reference}: {side.message or 'refused'}"
        evidence.append(Seen(text=text, record=side.record))
    inputs = inputs_of(case, cells)
    base, this = case.versions
    gone = verdict == model.NO_LONGER_SUPPORTED
    runs = f"{base if gone else this} runs it" + (", with a wrong result" if verdict == model.FAILING else "")
    sentence = "reference_unsupported" if is_reference else "operator_refused" if case.is_operator else "unsupported"
    both = "either version" if verdict == model.UNSUPPORTED and not case.alone else this
    message = side.message
    if case.is_operator:
        sentence = "operator_not_there" if protocol.HAS_NO in message else sentence
        nowhere = verdict == model.UNSUPPORTED or case.alone
        runs = "" if nowhere else f"; {runs}"
        message = message.rstrip("?.") if nowhere else message.partition("; did you mean")[0]
    return make(
        case,
        causes.UNSUPPORTED_COMBINATION,
        DECISIVE,
        sentence,
        cells,
        evidence,
        ruled_out=[no_results(cells[0])],
        figures=[figures.supported_figure(cells)],
        group=("unsupported", case.kernel, case.subject if case.is_operator else "", verdict, inputs, case.device),
        how=how,
        device=case.device,
        what=inputs or listed(cell.workload for cell in cells),
        reference=case.reference,
        running=runs,
        message=message,
        refusing=both if verdict == model.UNSUPPORTED else this if gone else base,
    )
