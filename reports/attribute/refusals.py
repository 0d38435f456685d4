"""Rules for what does not build, does not load, or is refused, and for kernels that ask for it: the message tells."""

from __future__ import annotations

from harness.worker import protocol
from harness.worker.protocol import FailureKind
from reports import model
from reports.attribute.cases import CaseFacts
from reports.attribute.causes import Kind, Rival
from reports.attribute.cells import CellFacts
from reports.attribute.finding import Finding, Shown
from reports.attribute.messages import compiler_refuses, in_first_trial, lacks_code, raised, raises, refused
from reports.attribute.wording import listed
from reports.compare.factors import DIFFERS
from reports.compare.rows import REFERENCE
from reports.model import Seen


def build_failed(case: CaseFacts) -> Finding | None:
    """By the same compiler, with the same flags, only PyTorch's own headers and libraries are left to differ."""
    cells = [cell for cell in case.cells if "build_failed" in (cell.sides[0].status, cell.sides[1].status)]
    failed = [build for build in case.builds if build is not None and build.status == "build_failed"]
    if not cells or len(failed) != 1 or case.refused:
        return None
    known = all(build is not None and build.compiler and build.flags for build in case.builds)
    alike = known and not case.build_inputs and compiler_refuses(failed[0])
    return Finding(
        cells=cells,
        shown=Shown.FOLLOWED,
        kind=Kind.UNSUPPORTED_COMBINATION if alike else Kind.BUILD_MOVED,
        out={Rival.FLAGS: "the same in both builds" if alike else None},
        seen=[case.build_seen(failed[0]), *case.build_inputs],
        measured=True,
        words={"how": "does not build", "side": int(failed[0] is case.builds[1]), "cause": "sources"},
    )


def does_not_build(case: CaseFacts) -> Finding | None:
    """In no environment that is compared here."""
    builds = [build for build in case.builds if build is not None]
    if not case.unbuilt:
        return None
    return Finding(
        cells=case.unbuilt,
        shown=Shown.TOGETHER,
        out={Rival.UPGRADE: None if case.alone else f"{case.versions[0]} fails alike"},
        seen=map(case.build_seen, builds),
        words={"message": builds[-1].message or "the build failed"},
    )


# -- what is built already --------------------------------------------------------------------------------

# Kinds of `LoadFailure` that name a symbol, a library, a version or a machine which the file does not fit.
NAMED = frozenset({"symbol", "cxx11_abi", "python", "library", "machine", "system"})


def does_not_load(case: CaseFacts) -> Finding | None:
    """What the file does not fit, where the loader names it; else what it says by itself when it is loaded, or how its
    process ends then."""
    cells = [cell for cell in case.cells if any(side.status == "build_failed" for side in cell.sides)]
    if not case.refused or not cells:
        return None
    named = [build for build in case.refused if build.refused is not None and build.refused.kind in NAMED]
    build = (named or case.refused)[-1]
    everywhere = len(case.refused) == len({each.environment for each in case.builds if each is not None})
    failure = build.refused
    assert failure is not None
    kind, same, loads = Kind.UNSUPPORTED_COMBINATION, None, None
    seen = [*map(case.build_seen, case.refused)]
    if named:
        kind, loads = Kind.ABI_BREAK, next((each for each in case.builds if each and each.status == "ok"), None)
        if loads is not None and build.artifact_sha256 and build.artifact_sha256 == loads.artifact_sha256:
            same = "the same file in both, byte for byte"
        if failure.instead:
            seen.append(Seen(text=f"{build.environment} has in its place: {failure.instead}"))
    elif everywhere:
        kind = Kind.OWN_ERROR
    return Finding(
        cells=cells,
        shown=Shown.FOLLOWED if named else Shown.TOGETHER,
        kind=kind,
        out={Rival.CODE: same},
        seen=seen,
        measured=True,
        words={
            "how": "does not load",
            "message": build.message,
            "file": build.artifact or case.kernel,
            "everywhere": everywhere,
            "side": int(build is case.builds[1]),
            "reason": failure.reason,
            "loads": case.evidence.names.get(loads.environment, loads.environment) if loads else "",
        },
        fix=failure.remedy,
    )


# -- what is refused --------------------------------------------------------------------------------------


def own_error(case: CaseFacts) -> Finding | None:
    """It raises in every environment what neither PyTorch nor its interface raises to refuse something."""
    cells = case.own_errors
    if not cells:
        return None
    return Finding(
        cells=cells,
        shown=Shown.TOGETHER,
        out={Rival.UPGRADE: None if case.alone else f"{case.versions[0]} ends alike"},
        sides=[(cell, side) for cell in cells[:4] for side in cell.sides],
        words={"message": cells[0].sides[1].message},
    )


def refused_by_itself(case: CaseFacts) -> Finding | None:
    """The kernel gives its interface's code for what it has no code for, in every environment. Where it does in one
    only, that is an exception like others."""
    cells = [cell for cell in case.cells if all(map(refused, cell.sides))]
    if not cells:
        return None
    return Finding(
        cells=cells,
        shown=Shown.TOGETHER,
        out={
            Rival.UPGRADE: None if case.alone else f"{case.versions[0]} refuses alike",
            Rival.ALGORITHM: "by its interface, it returns such a code before it computes anything",
        },
        sides=[(cell, side) for cell in cells[:4] for side in cell.sides],
        words={"how": "by itself", "message": cells[0].sides[1].message},
    )


def refused_by_error(case: CaseFacts) -> Finding | None:
    """It ends with PyTorch's words for a combination that it has no code for, in one environment or in all."""
    cells = [cell for cell in case.cells if any(map(lacks_code, cell.sides)) and cell not in case.own_errors]
    if not cells:
        return None
    without = [number for number, side in enumerate(cells[0].sides) if lacks_code(side)]
    sides = [cells[0].sides[number] for number in without]
    references = _references_refuse(cells[0])
    return Finding(
        cells=cells,
        shown=Shown.FOLLOWED,
        needs={"that the kernel asks for something else than PyTorch's references do": references},
        seen=[*(Seen(text=f"{side.environment}: {side.message}", record=side.record) for side in sides), *references],
        words={"how": "by PyTorch", "side": without[0] if len(without) == 1 else None, "message": sides[-1].message},
    )


def _references_refuse(cell: CellFacts) -> list[Seen]:
    """Return PyTorch's own references that are refused where the kernel is."""
    found = [
        Seen(text=f"{target.target} is refused in {side.environment} too: {target.message}", record=side.record)
        for side, record in zip(cell.sides, cell.validations, strict=True)
        if record is not None and lacks_code(side)
        for recipe in record.recipes
        for target in recipe.targets
        if target.status == protocol.UNSUPPORTED
    ]
    return list(dict.fromkeys(found))[:2]


def raises_on_one_side(case: CaseFacts) -> Finding | None:
    """In one environment every call ends with the same exception of Python's, on inputs that did not move: the kernel,
    or what it calls there, refuses them. A signal, or an exception that comes and goes, says nothing of the kind."""
    found = []
    for cell in case.cells:
        raising = [number for number in (0, 1) if _always_raises(cell, number)]
        if len(raising) == 1 and cell.sides[1 - raising[0]].status in protocol.RAN:
            found.append((cell, raising[0]))
    if not found:
        return None
    number = found[0][1]
    cells = [each for each, which in found if which == number]
    same = "the same exception each time, and no signal"
    return Finding(
        cells=cells,
        shown=Shown.TOGETHER,
        out={
            Rival.INPUTS: cells[0].inputs.seen,
            **dict.fromkeys((Rival.CHANCE, Rival.UNINITIALISED, Rival.OUT_OF_BOUNDS), same),
        },
        sides=[(each, each.sides[number]) for each in cells[:4]],
        words={"how": "raises", "side": number, "message": cells[0].sides[number].message},
    )


def _always_raises(cell: CellFacts, number: int) -> bool:
    """Return whether the first trial of every recipe raised the same exception there, and each call of an
    experiment."""
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


def unsupported(case: CaseFacts) -> Finding | None:
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
    cells = [cell for cell in cells if cell.verdict == cells[0].verdict]
    if not cells:
        return None
    refusing = [(c, next(side for side in c.sides if side.status == protocol.UNSUPPORTED)) for c in cells[:4]]
    message = refusing[-1][1].message
    return Finding(
        cells=cells,
        shown=Shown.FOLLOWED,
        sides=refusing,
        words={
            "how": "operator" if case.is_operator else "reference" if is_reference else "refused",
            "verdict": model.UNSUPPORTED if case.alone else cells[0].verdict,
            "inputs": case.inputs_of(cells) or listed(cell.workload for cell in cells),
            "missing_operator": refusing[-1][1].failure is FailureKind.MISSING_OPERATOR,
        },
        details={"message": message},
    )
