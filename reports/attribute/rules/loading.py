"""Rules for kernels that are built already, and that an environment cannot load.

The file is the same in all environments, byte for byte, and the loader itself names what it misses.
"""

from __future__ import annotations

from harness.schema.environment_records import BuildRecord, LoadFailure
from reports.attribute import causes
from reports.attribute.causes import DECISIVE, STRONG, Cause, RuledOut
from reports.attribute.evidence import ended, where_all
from reports.attribute.facts.cases import CaseFacts
from reports.attribute.facts.cells import CellFacts
from reports.attribute.wording import make
from reports.model import Seen

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
    where = where_all(case) if everywhere else f"in {case.versions[build is case.builds[1]]}"
    seen = [Seen(text=f"{each.environment}: {each.message}", record=_record(case, each)) for each in case.refused]
    failure = build.refused
    assert failure is not None
    if named:
        return _abi_break(case, cells, build, failure, where, seen)
    if everywhere:
        return make(
            case,
            causes.OWN_ERROR,
            STRONG,
            "own_error",
            cells,
            seen,
            group=("own error", case.kernel, build.message),
            fix=failure.remedy,
            where=where,
            message=ended(build.message),
        )
    return make(
        case,
        causes.UNSUPPORTED_COMBINATION,
        STRONG,
        "loading_raises",
        cells,
        seen,
        measured=True,
        fix=failure.remedy,
        where=where,
        reason=failure.reason,
    )


def _record(case: CaseFacts, build: BuildRecord) -> str:
    return case.evidence.build_pointer(build.environment, case.kernel, case.device)


def _abi_break(
    case: CaseFacts, cells: list[CellFacts], build: BuildRecord, failure: LoadFailure, where: str, seen: list[Seen]
) -> Cause:
    record, before, same = _record(case, build), "", None
    other = next((each for each in case.builds if each is not None and each.status == "ok"), None)
    if other is not None:
        library = other.provided.get(failure.symbol, "")
        name = case.evidence.names.get(other.environment, other.environment)
        before = f" It loads in {name}, where {library} defines that symbol." if library else f" It loads in {name}."
        there = f"{library} defines {failure.symbol}" if library else "it loads"
        seen.append(Seen(text=f"{other.environment}: {there}", record=_record(case, other)))
        if build.artifact_sha256 and build.artifact_sha256 == other.artifact_sha256:
            how = f"the same file in both, byte for byte (SHA-256 {build.artifact_sha256[:12]}...)"
            same = RuledOut(rival="the kernel's code and build", how=how, record=record)
    if failure.instead:
        seen.append(Seen(text=f"{build.environment} has in its place: {failure.instead}", record=record))
    return make(
        case,
        causes.ABI_BREAK,
        DECISIVE,
        "abi_break",
        cells,
        seen,
        ruled_out=[same, RuledOut(rival="a change of results", how="it was never called there", record=record)],
        group=("abi", case.kernel, failure.kind, failure.symbol or failure.library),
        measured=True,
        fix=failure.remedy,
        file=build.artifact or case.kernel,
        where=where,
        reason=failure.reason,
        before=before,
    )
