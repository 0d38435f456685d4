"""Rules for what does not build, does not load, or is refused, and for kernels that ask for it: the message tells."""

from __future__ import annotations

from harness.schema.environment_records import BuildRecord, LoadFailure
from harness.worker import protocol
from harness.worker.protocol import FailureKind
from reports import model
from reports.attribute import figures
from reports.attribute.cards import Shown, card, excluded
from reports.attribute.cases import CaseFacts
from reports.attribute.causes import REFERENCES_TOLD, Cause, Kind, Rival
from reports.attribute.cells import CellFacts
from reports.attribute.evidence import ended, inputs_of, listed, where_all
from reports.attribute.messages import (
    compiler_refuses,
    in_first_trial,
    lacks_code,
    raised,
    raises,
    refused,
)
from reports.attribute.words import Says
from reports.compare.factors import DIFFERS
from reports.compare.rows import REFERENCE
from reports.model import CorrectnessSide, Seen


def _alike(case: CaseFacts, how: str, record: str | None) -> Seen | None:
    """That the baseline does the same, so that the upgrade is not why."""
    return None if case.alone else Seen(text=f"{case.versions[0]} {how}", record=record)


def _build_record(case: CaseFacts, build: BuildRecord) -> str:
    return case.evidence.build_pointer(build.environment, case.kernel, case.device)


def build_failed(case: CaseFacts) -> Cause | None:
    """By the same compiler, with the same flags, only PyTorch's own headers and libraries are left to differ."""
    cells = [cell for cell in case.cells if "build_failed" in (cell.sides[0].status, cell.sides[1].status)]
    failed = [build for build in case.builds if build is not None and build.status == "build_failed"]
    if not cells or len(failed) != 1 or case.alone or case.refused:
        return None
    (build,) = failed
    known = all(build is not None and build.compiler and build.flags for build in case.builds)
    alike = known and not case.build_inputs and compiler_refuses(build)
    record = _build_record(case, build)
    return card(
        case,
        Kind.UNSUPPORTED_COMBINATION if alike else Kind.BUILD_MOVED,
        Shown.FOLLOWED,
        Says.BUILD_REFUSED if alike else Says.BUILD_FAILED,
        cells,
        [Seen(text=build.message or "the build failed", record=record), *case.build_inputs],
        out=[excluded(Rival.FLAGS, Seen(text="the same in both builds", record=record) if alike else None)],
        measured=True,
        where=f"in {case.places[build is case.builds[1]]}",
    )


def does_not_build(case: CaseFacts) -> Cause | None:
    """In no environment that is compared here."""
    cells = case.unbuilt
    if not cells or not case.is_kernel:
        return None
    failed = {build.environment: build for build in case.builds if build is not None}
    builds = list(failed.values())
    message = builds[-1].message or "the build failed"
    return card(
        case,
        Kind.DOES_NOT_BUILD,
        Shown.TOGETHER,
        Says.DOES_NOT_BUILD,
        cells,
        [
            Seen(text=f"{build.environment}: {build.message or 'the build failed'}", record=_build_record(case, build))
            for build in builds
        ],
        out=[excluded(Rival.UPGRADE, _alike(case, "fails alike", _build_record(case, builds[0])))],
        group=("does not build", case.kernel, message),
        where=where_all(case),
        message=ended(message),
    )


# -- what is built already --------------------------------------------------------------------------------

# Kinds of `LoadFailure` that name a symbol, a library, a version or a machine which the file does not fit.
NAMED = frozenset({"symbol", "cxx11_abi", "python", "library", "machine", "system"})


def does_not_load(case: CaseFacts) -> Cause | None:
    """What the file does not fit, where the loader names it; else what it says by itself when it is loaded, or how its
    process ends then."""
    cells = [cell for cell in case.cells if any(side.status == "build_failed" for side in cell.sides)]
    if not case.refused or not cells or not case.is_kernel:
        return None
    named = [build for build in case.refused if build.refused is not None and build.refused.kind in NAMED]
    build = (named or case.refused)[-1]
    everywhere = len(case.refused) == len({each.environment for each in case.builds if each is not None})
    where = where_all(case) if everywhere else f"in {case.places[build is case.builds[1]]}"
    seen = [Seen(text=f"{each.environment}: {each.message}", record=_build_record(case, each)) for each in case.refused]
    failure = build.refused
    assert failure is not None
    if named:
        return _abi_break(case, cells, build, failure, where, seen)
    if everywhere:
        return _own_error(case, cells, seen, build.message, where, failure.remedy)
    return card(
        case,
        Kind.UNSUPPORTED_COMBINATION,
        Shown.TOGETHER,
        Says.LOADING_RAISES,
        cells,
        seen,
        measured=True,
        fix=failure.remedy,
        where=where,
        reason=failure.reason,
    )


def _abi_break(
    case: CaseFacts, cells: list[CellFacts], build: BuildRecord, failure: LoadFailure, where: str, seen: list[Seen]
) -> Cause:
    record, before, same = _build_record(case, build), "", None
    other = next((each for each in case.builds if each is not None and each.status == "ok"), None)
    if other is not None:
        before = f" It loads in {case.evidence.names.get(other.environment, other.environment)}."
        seen.append(Seen(text=f"{other.environment}: it loads", record=_build_record(case, other)))
        if build.artifact_sha256 and build.artifact_sha256 == other.artifact_sha256:
            how = f"the same file in both, byte for byte (SHA-256 {build.artifact_sha256[:12]}...)"
            same = Seen(text=how, record=record)
    if failure.instead:
        seen.append(Seen(text=f"{build.environment} has in its place: {failure.instead}", record=record))
    return card(
        case,
        Kind.ABI_BREAK,
        Shown.FOLLOWED,
        Says.ABI_BREAK,
        cells,
        seen,
        out=[excluded(Rival.CODE, same)],
        group=("abi", case.kernel, failure.kind, failure.symbol or failure.library),
        measured=True,
        fix=failure.remedy,
        file=build.artifact or case.kernel,
        where=where,
        reason=failure.reason,
        before=before,
    )


# -- what is refused --------------------------------------------------------------------------------------


def _own_error(
    case: CaseFacts,
    cells: list[CellFacts],
    seen: list[Seen],
    message: str,
    where: str,
    fix: str = "",
    alike: Seen | None = None,
) -> Cause:
    return card(
        case,
        Kind.OWN_ERROR,
        Shown.TOGETHER,
        Says.OWN_ERROR,
        cells,
        seen,
        out=[excluded(Rival.UPGRADE, alike)],
        group=("own error", case.kernel, message),
        fix=fix,
        where=where,
        message=ended(message),
    )


def _both_sides(cells: list[CellFacts]) -> list[Seen]:
    return [cell.seen_in(side.environment, side.message, side.record) for cell in cells[:4] for side in cell.sides]


def own_error(case: CaseFacts) -> Cause | None:
    """It raises in every environment what neither PyTorch nor its interface raises to refuse something."""
    cells = case.own_errors
    if not cells:
        return None
    alike = _alike(case, "ends alike", cells[0].sides[0].record)
    return _own_error(case, cells, _both_sides(cells), cells[0].sides[1].message, where_all(case), alike=alike)


def refused_by_itself(case: CaseFacts) -> Cause | None:
    """The kernel gives its interface's code for what it has no code for, in every environment. Where it does in one
    only, that is an exception like others."""
    cells = [cell for cell in case.cells if all(map(refused, cell.sides))]
    if not case.is_kernel or not cells:
        return None
    before = "by its interface, it returns such a code before it computes anything"
    return card(
        case,
        Kind.UNSUPPORTED_COMBINATION,
        Shown.TOGETHER,
        Says.REFUSED_BY_ITSELF,
        cells,
        _both_sides(cells),
        out=[
            excluded(Rival.UPGRADE, _alike(case, "refuses alike", cells[0].sides[0].record)),
            excluded(Rival.ALGORITHM, before),
        ],
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
    return card(
        case,
        Kind.UNSUPPORTED_COMBINATION,
        Shown.FOLLOWED,
        Says.REFUSED_BY_ERROR,
        cells,
        [*(Seen(text=f"{side.environment}: {side.message}", record=side.record) for side in without), *references],
        needs={"that the kernel asks for something else than PyTorch's references do": references},
        where="in both environments" if base and this else f"in {case.places[this]}",
        message=without[-1].message,
    )


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
    where = f"in {case.versions[number]}"
    same = Seen(text="the same exception each time, and no signal", record=side.record)
    return card(
        case,
        Kind.UNSUPPORTED_COMBINATION,
        Shown.TOGETHER,
        Says.RAISES_ON_ONE_SIDE,
        cells,
        [
            *(each.seen(each.sides[number].message, side.record) for each in cells[:4]),
            Seen(text=f"every call that was tried {where} does the same, in every process and on all inputs"),
            cell.inputs.seen,
        ],
        out=[
            excluded(Rival.INPUTS, cell.inputs),
            *(excluded(rival, same) for rival in (Rival.CHANCE, Rival.UNINITIALISED, Rival.OUT_OF_BOUNDS)),
        ],
        where=f"in {case.places[number]}",
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
        if result.status not in (protocol.NOT_RUN, protocol.UNSUPPORTED) and not result.condition.dtype
    ]
    first = all(in_first_trial(message) for _, message in validated)
    same = all(status == protocol.CRASHED and raises(message, exception) for status, message in (*validated, *tried))
    return bool(validated) and first and same


HOW_REFUSED = {
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
    refusing = [_refusing(cell) for cell in cells]
    inputs, (base, this) = inputs_of(case, cells), case.places
    gone, nowhere = verdict == model.NO_LONGER_SUPPORTED, verdict == model.UNSUPPORTED or case.alone
    runs = f"{base if gone else this} runs it" + (", with a wrong result" if verdict == model.FAILING else "")
    message = refusing[min(len(cells), 4) - 1].message
    says = Says.REFERENCE_UNSUPPORTED if is_reference else Says.UNSUPPORTED
    if case.is_operator:
        lacks = refusing[min(len(cells), 4) - 1].failure is FailureKind.MISSING_OPERATOR
        says = Says.OPERATOR_NOT_THERE if lacks else Says.OPERATOR_REFUSED
        message = message.rstrip("?.") if nowhere else message.partition("; did you mean")[0]
        runs = "" if nowhere else f"; {runs}"
    both = "either version" if verdict == model.UNSUPPORTED and not case.alone else this
    return card(
        case,
        Kind.UNSUPPORTED_COMBINATION,
        Shown.FOLLOWED,
        says,
        cells,
        [
            Seen(
                text=f"{cell.workload}, {case.kernel or case.reference}: {side.message or 'refused'}",
                record=side.record,
            )
            for cell, side in list(zip(cells, refusing, strict=True))[:4]
        ],
        drawn=[figures.supported_figure(cells)],
        group=("unsupported", case.kernel, case.subject if case.is_operator else "", verdict, inputs, case.device),
        how=HOW_REFUSED.get(verdict, "is refused in every environment").format(*case.places),
        device=case.device,
        what=inputs or listed(cell.workload for cell in cells),
        reference=REFERENCES_TOLD,
        running=runs,
        message=message,
        refusing=both if verdict == model.UNSUPPORTED else this if gone else base,
    )


def _refusing(cell: CellFacts) -> CorrectnessSide:
    return next(side for side in cell.sides if side.status == protocol.UNSUPPORTED)
