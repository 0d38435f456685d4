"""Rules for kernels that are built already, and that an environment cannot load.

The file is the same in all environments, byte for byte, and the loader itself names what it misses.
"""

from __future__ import annotations

from reports.attribute import causes
from reports.attribute.causes import DECISIVE, STRONG, Cause, RuledOut
from reports.attribute.evidence import ended, where_all
from reports.attribute.facts.cases import CaseFacts
from reports.attribute.wording import make
from reports.model import Seen

# Kinds of `LoadFailure` that name a symbol, a library, a version or a machine which the file does not fit.
NAMED = frozenset({"symbol", "cxx11_abi", "python", "library", "machine", "system"})


def abi_break(case: CaseFacts) -> Cause | None:
    refused = [build for build in case.refused if build.refused is not None and build.refused.kind in NAMED]
    cells = [cell for cell in case.cells if any(side.status == "build_failed" for side in cell.sides)]
    if not refused or not cells or not case.is_kernel:
        return None
    build = refused[-1]
    failure = build.refused
    assert failure is not None
    other = next((each for each in case.builds if each is not None and each.status == "ok"), None)
    library = other.provided.get(failure.symbol, "") if other is not None else ""
    pointer = case.evidence.build_pointer(build.environment, case.kernel, case.device)
    known, before, seen = {each.environment: each for each in refused}, "", list[Seen]()
    for environment, each in known.items():
        at = case.evidence.build_pointer(environment, case.kernel, case.device)
        seen.append(Seen(text=f"{environment}: {each.message}", record=at))
    same = None
    if other is not None:
        there = case.evidence.build_pointer(other.environment, case.kernel, case.device)
        name = case.evidence.names.get(other.environment, other.environment)
        before = f" It loads in {name}, where {library} defines that symbol." if library else f" It loads in {name}."
        if library:
            seen.append(Seen(text=f"{other.environment}: {library} defines {failure.symbol}", record=there))
        else:
            seen.append(Seen(text=f"{other.environment}: it loads", record=there))
        if build.artifact_sha256 and build.artifact_sha256 == other.artifact_sha256:
            how = f"the same file in both, byte for byte (SHA-256 {build.artifact_sha256[:12]}...)"
            same = RuledOut(rival="the kernel's code and build", how=how, record=pointer)
    if failure.instead:
        seen.append(Seen(text=f"{build.environment} has in its place: {failure.instead}", record=pointer))
    everywhere = other is None
    where = where_all(case) if everywhere else f"in {case.versions[build is case.builds[1]]}"
    return make(
        case, causes.ABI_BREAK, DECISIVE, "abi_break", cells, seen,
        ruled_out=[same, RuledOut(rival="a change of results", how="it was never called there", record=pointer)],
        group=("abi", case.kernel, failure.kind, failure.symbol or failure.library), measured=True,
        fix=failure.remedy, file=build.artifact or case.kernel, where=where, reason=failure.reason, before=before,
    )  # fmt: skip


def raises_when_loaded(case: CaseFacts) -> Cause | None:
    """What it says by itself when it is loaded, or how its process ends then."""
    refused = [build for build in case.refused if build.refused is not None and build.refused.kind not in NAMED]
    cells = [cell for cell in case.cells if any(side.status == "build_failed" for side in cell.sides)]
    if not refused or not cells or not case.is_kernel:
        return None
    build = refused[-1]
    assert build.refused is not None
    seen = [
        Seen(text=f"{each.environment}: {each.message}",
             record=case.evidence.build_pointer(each.environment, case.kernel, case.device))
        for each in refused
    ]  # fmt: skip
    if case.alone or len(refused) == len({each.environment for each in case.builds if each is not None}):
        return make(
            case, causes.OWN_ERROR, STRONG, "own_error", cells, seen, group=("own error", case.kernel, build.message),
            fix=build.refused.remedy, where=where_all(case), message=ended(build.message),
        )  # fmt: skip
    return make(
        case, causes.UNSUPPORTED_COMBINATION, STRONG, "loading_raises", cells, seen, measured=True,
        fix=build.refused.remedy, where=f"in {case.versions[build is case.builds[1]]}", reason=build.refused.reason,
    )  # fmt: skip
