"""Rules for what changed between the two environments: inputs, builds, code, packages, variables and PyTorch itself.

Object code that was built in one environment and run in the other holds one of the two fixed, as variables, packages
and versions do that were tried both ways; without that, a hash of the disassembly says whether the code moved at all.
"""

from __future__ import annotations

from functools import partial

from harness.schema.environment_records import EnvironmentRecord
from harness.schema.packages import counts, only_packages
from harness.worker import protocol
from reports import model
from reports.attribute.cases import CaseFacts
from reports.attribute.causes import Kind, Rival
from reports.attribute.cells import CellFacts, Reference, operators_moved
from reports.attribute.finding import Finding, Rule, Shown, first_of
from reports.attribute.messages import asserted, died
from reports.attribute.times import TimeChange
from reports.attribute.trials import Exchange, Follows, Varied
from reports.compare.differences import VARIABLE
from reports.compare.factors import DIFFERS, SAME, UNKNOWN, operators_seen
from reports.compare.meaning import evidence_text, meaning_text
from reports.model import Comparison, Seen


def inputs_moved(case: CaseFacts) -> Finding | None:
    cells = [cell for cell in case.cells if cell.inputs.state == DIFFERS]
    if not cells:
        return None
    seen = [cell.seen(cell.inputs.seen.text, cell.inputs.seen.record) for cell in cells[:6]]
    return Finding(cells=cells, shown=Shown.FOLLOWED, seen=seen, words={"how": "inputs"})


def broken_environment(case: CaseFacts) -> Finding | None:
    stack = next((stack for stack in reversed(case.stacks) if stack is not None and stack.status != "ok"), None)
    if stack is None:
        return None
    words = {"how": "broken", "environment": stack.id, "why": stack.message or stack.status.replace("_", " ")}
    return Finding(cells=case.cells, shown=Shown.FOLLOWED, words=words)


# -- the kernel's code, and where it runs -----------------------------------------------------------------

HEADERS = (
    "PyTorch's headers, whose code is compiled into it and differs between versions, and the operators that it calls"
)


def code_moved(case: CaseFacts) -> Finding | None:
    cells = case.moved_by_itself
    if not cells or case.code.state != DIFFERS or case.swap_follows not in (Follows.FACTOR, Follows.UNKNOWN):
        return None
    swapped = case.swap_follows is Follows.FACTOR
    built = bool(case.build_differences)
    headers = not built and (case.brings_code or any(build and build.binds_itself for build in case.builds))
    last = [cell.seen(f"its last assertion: {text[-200:]}") for cell in cells[:4] for text in map(asserted, cell.sides)]
    return Finding(
        cells=cells,
        shown=Shown.FOLLOWED if swapped else Shown.TOGETHER,
        kind=Kind.BUILD_MOVED if built else Kind.KERNEL_CODE_MOVED,
        needs={
            Rival.UNINITIALISED: case.memory_clean or (swapped and not case.unsteady),
            Rival.CHANCE: not case.unsteady or (swapped and case.memory_clean),
            HEADERS: not headers or swapped,
        },
        out={
            Rival.SURROUNDINGS: "right or wrong depends on the object code, wherever it runs" if swapped else None,
            Rival.FLAGS: "the same in both builds" if not built and not case.brings_code else None,
        },
        seen=[each for each in last if not each.text.endswith(": ")],
        exchange=case.swap,
        code=True,
        words={
            "how": "loads" if case.brings_code else "compiles",
            "died": died(cells[0].sides[1]) if cells[0].dies_on_one_side else None,
        },
    )


OF_WHEELS = "torch_cuda"  # what differs between two of PyTorch's own wheels, whichever version they are


def environment_confounder(case: CaseFacts) -> Finding | None:
    """The result goes with where the kernel runs. Without swapped object code that is said only where the code is the
    same, and memory was tried."""
    cells, follows, code = case.moved_by_itself, case.swap_follows, case.code.state
    if not cells or case.variables_matter:
        return None
    differences, needs = case.differences_left, dict[str, object]()
    if follows is Follows.PLACE:
        shown, needs = Shown.FOLLOWED, {Rival.UNINITIALISED: case.memory_clean, Rival.CHANCE: not case.unsteady}
    elif follows is not Follows.UNKNOWN or case.unsteady:
        return None
    elif code == SAME and case.memory_clean:
        of_wheels = bool(differences) and all(each.kind == OF_WHEELS for each in differences)
        shown, needs = Shown.TOGETHER, {Rival.PYTORCH: not of_wheels}  # which is nearly always built for another CUDA
    elif code == SAME and any(each.kind == VARIABLE for each in differences):
        shown, needs = Shown.HINT, {Rival.UNINITIALISED: None}
    elif case.one_torch and differences and code in (SAME, UNKNOWN):
        shown, needs = Shown.TOGETHER, {Rival.UNINITIALISED: case.memory_clean}
    else:
        return None
    return Finding(
        cells=cells,
        shown=shown,
        needs=needs,
        exchange=case.swap,
        differences=differences,
        code=True,
        words={"how": "surroundings"},
    )


def variables_decide(case: CaseFacts) -> Finding | None:
    """The result goes with the variables, in both environments or in one of them."""
    if case.variable_trials is None or not case.variables_matter:
        return None
    trials = case.variable_trials[1]
    follows = trials.follows is Follows.FACTOR
    what = "gives other bits with the other set" if trials.by_bits else "is right with one set and wrong with the other"
    by_fault = case.unsteady and not case.fault_comes_with_variables
    return Finding(
        cells=case.failing or [case.variable_trials[0]],
        shown=Shown.HINT if by_fault else Shown.FOLLOWED,
        needs={Rival.CHANCE: not case.unsteady, "what else is in the environment": follows},
        out={Rival.CODE: Seen(text=f"the same binary in the same environment {what}", record=trials.path)},
        exchange=case.variable_trials,
        differences=case.variables,
        words={"how": "variables", "follows": follows},
    )


# -- packages ---------------------------------------------------------------------------------------------

NOT_BOTH = "PyTorch's own part, for one of the two exchanges could not be run"
SAME_PYTORCH = {Rival.PYTORCH: "the same in both environments"}


def sole_of(base: EnvironmentRecord | None, this: EnvironmentRecord | None, device: str) -> Exchange | None:
    """Return the one package that PyTorch is known to compute with, or that matrix.yaml names, by which two
    environments of one PyTorch differ: they are the experiment. `problems`: what differs besides. None where more
    differs."""
    if base is None or this is None:
        return None
    packages, named = only_packages(base, this), base.packages.keys() | this.packages.keys()
    matter = [name for name in packages if name in named or counts(name, device)]
    if len(matter) != 1:
        return None
    (package,) = matter
    return Exchange(
        factor=Varied.PACKAGE,
        base=base.id,
        this=this.id,
        cells={},
        path="",
        package=package,
        versions=packages[package],
        problems=tuple(name for name in packages if name != package),
    )


def package_finding(
    found: tuple[CellFacts, Exchange],
    what: str,
    how: str,
    needs: dict[str, object],
    cells: list[CellFacts] | None = None,
    *,
    pinned: bool = True,
) -> Finding:
    """Return what is said of a package: its versions and its remedy. `how`: it follows it, or
    only together with the rest of the environment, or it is all that differs. `what`: result, time or memory."""
    cell, package = found
    one = package.versions[0]
    remedy = f"pin {package.package}=={one}" if one else f"leave out {package.package}"
    is_one_way = bool(package.cells) and package.is_one_way
    held = "held: with either PyTorch, result and package go together"
    holds = how == FOLLOWS and all(needs.get(name, True) for name in (NOT_BOTH, REST))
    return Finding(
        cells=cells or [cell],
        shown=Shown.FOLLOWED,
        kind=Kind.COMPONENT_MOVED,
        needs=needs,
        out=SAME_PYTORCH if how == SOLE else {Rival.PYTORCH: held if holds else None},
        exchange=found,
        fix=f"{remedy} (packages, in matrix.yaml)" if pinned else "",
        words={"how": how, "what": what, "versions": (package.package, *package.versions)},
        details={"package": package, "is_one_way": is_one_way},
    )


FOLLOWS, TOGETHER, SOLE = "follows", "together", "sole"
REST = "the rest of the environment"


def others_too(package: Exchange) -> dict[str, object]:
    """Return the need that nothing else differs."""
    others = ", ".join(package.problems)
    return {f"{others}, which differs too, and which PyTorch is not known to compute with": not others}


def component_moved(case: CaseFacts) -> Finding | None:
    """Results that go with a package, whichever PyTorch it is with; or with both together."""
    found = [
        (cell, each)
        for cell, each, follows in case.exchanged
        if follows is Follows.FACTOR or (follows is Follows.BOTH and each.needs_both)
    ]
    if not found:
        return None
    cell, exchange = found[0]
    one = len({each.package for _, each in found}) == 1
    needs: dict[str, object] = {
        NOT_BOTH: not exchange.is_one_way,
        REST: not exchange.needs_both and one,
        Rival.CHANCE: not case.unsteady,
        Rival.UNINITIALISED: not case.follows_poison,
    }
    cells = [cell, *(other for other in case.moved if other.verdict == cell.verdict)]
    how = TOGETHER if exchange.needs_both else FOLLOWS
    return package_finding(found[0], "correctness", how, needs, cells, pinned=_is_worse(cell))


def _is_worse(cell: CellFacts) -> bool:
    return cell.verdict not in (model.FIXED, model.MORE_EXACT)


def sole_package(case: CaseFacts) -> Finding | None:
    """Results that moved between environments of one PyTorch that differ in one package."""
    package, moved = sole_of(*case.stacks, case.device), case.moved
    if package is None or not moved:
        return None
    needs = {
        **others_too(package),
        Rival.CHANCE: not case.unsteady,
        Rival.UNINITIALISED: not case.follows_poison,
    }
    found = moved[0], package
    return package_finding(found, "correctness", SOLE, needs, moved, pinned=_is_worse(moved[0]))


def sole_package_of_time(change: TimeChange) -> Finding | None:
    package, cells = sole_of(*change.case.stacks, change.case.device), list(change.cells)
    if package is None:
        return None
    found = cells[0], package
    return package_finding(found, "latency", SOLE, others_too(package), cells, pinned=change.verdict == model.REGRESSED)


def component_of_time(change: TimeChange) -> Finding | None:
    """A time that goes with a package, whichever PyTorch it is with."""
    timed = [(cell, each) for cell in change.cells for each in cell.exchanges if each.timed]
    found = [(cell, each) for cell, each in timed if change.case.time_follows(each) is Follows.FACTOR]
    if not found:
        return None
    both = not found[0][1].is_one_way and len({each.package for _, each in found}) == 1
    needs: dict[str, object] = {NOT_BOTH: both}
    worse = change.verdict == model.REGRESSED
    return package_finding(found[0], "latency", FOLLOWS, needs, list(change.cells), pinned=worse)


# -- PyTorch's references ---------------------------------------------------------------------------------


def _same_bits(case: CaseFacts, cell: CellFacts) -> bool:
    """Return whether it has the same bits in both: of what gives other bits from call to call, that is luck."""
    return cell.bits.state == SAME and not case.unsteady


def _kernel_stays(case: CaseFacts, cell: CellFacts) -> bool:
    against_truth = getattr(cell.sides[1].rate, "against", "") == protocol.TRUTH
    return _same_bits(case, cell) or (cell.verdict == model.PASS and against_truth)


def _counts(cell: CellFacts, reference: Reference) -> bool:
    """Return whether this reference's movement changes what can be said of the kernel: more than drift within
    rounding."""
    decided = reference.name == getattr(cell.sides[1].rate, "against", "")
    judged_otherwise = (reference.base.status == protocol.OK) != (reference.this.status == protocol.OK)
    return judged_otherwise or decided or cell.verdict not in model.RIGHT


def _moved_under(kind: Kind, case: CaseFacts) -> Finding | None:
    """Agreement with a reference moved, and it was the reference that moved."""
    swapped = kind is Kind.DEFAULT_BACKEND_MOVED
    found = [
        (cell, reference)
        for cell in case.cells
        if cell.inputs.state == SAME and _kernel_stays(case, cell)
        for reference in cell.references
        if reference.bits.state == DIFFERS and _counts(cell, reference) and reference.operators_moved == swapped
    ]
    if not found:
        return None
    cells = first_of([], found)
    names = tuple(dict.fromkeys(reference.name for _, reference in found))
    same = all(_same_bits(case, cell) for cell in cells)
    seen = [(each.bits.seen, operators_seen(each.base, each.this, case.versions)) for _, each in found[:4]]
    return Finding(
        cells=cells,
        shown=Shown.FOLLOWED,
        kind=Kind.ENVIRONMENT_CONFOUNDER if case.one_torch else kind,
        needs={Rival.CODE: same},
        out={Rival.CODE: cells[0].bits.seen if same else None},
        seen=[each for pair in seen for each in pair],
        crossed=names,
        under=names,
        words={"how": "under", "swapped": swapped, "same": same, "agreed": _agreed(found)},
    )


def _agreed(found: list[tuple[CellFacts, Reference]]) -> list[tuple[str, int, int, int, int]]:
    """Return of each reference how many trials agreed with it, of how many, in the baseline and here."""
    told = []
    for name in dict.fromkeys(reference.name for _, reference in found):
        rates = [r.agreed for _, r in found if r.name == name and None not in r.agreed]
        sides = [[rate for rate in side if rate is not None] for side in zip(*rates, strict=True)]
        if sides:
            (one, all_one), (two, all_two) = ((sum(r.passed for r in s), sum(r.trials for r in s)) for s in sides)
            told.append((name, one, all_one, two, all_two))
    return told


reference_moved_under: Rule = partial(_moved_under, Kind.REFERENCE_MOVED)
default_moved_under: Rule = partial(_moved_under, Kind.DEFAULT_BACKEND_MOVED)


def reference_moved(case: CaseFacts) -> Finding | None:
    """A reference's own verdict against the truth moved: no kernel takes part in that."""
    cells = [cell for cell in case.moved if cell.inputs.state == SAME and cell.bits.state == DIFFERS]
    if case.is_kernel or not cells:
        return None
    swapped = any(operators_moved(*cell.sides) for cell in cells)
    kind = Kind.DEFAULT_BACKEND_MOVED if swapped else Kind.REFERENCE_MOVED
    kind = Kind.OPERATOR_MOVED if case.is_operator else kind
    return Finding(
        cells=cells,
        shown=Shown.FOLLOWED,
        kind=Kind.ENVIRONMENT_CONFOUNDER if case.one_torch else kind,
        seen=[operators_seen(*cell.sides, case.versions) for cell in cells[:3]],
        crossed=[cells[0].target],
        words={
            "how": "reference",
            "verdicts": sorted({cell.verdict for cell in cells}),
            "dtypes": case.dtypes(cells),
            "defined": cells[0].is_defined,
        },
    )


def default_moved(case: CaseFacts) -> Finding | None:
    """PyTorch picks another operator for the same call; its outputs stay right."""
    cells = [cell for cell in case.cells if operators_moved(*cell.sides) and not cell.verdict_moved]
    if case.is_kernel or case.reference != "default" or not cells:
        return None
    return Finding(
        cells=cells,
        shown=Shown.FOLLOWED,
        seen=[operators_seen(*cell.sides, case.versions) for cell in cells[:3]],
        words={"how": "default", "right": all(cell.verdict in model.RIGHT for cell in cells)},
    )


def compiled_code_moved(case: CaseFacts) -> Finding | None:
    """Other generated code and another result are two things that moved together. The same call without torch.compile,
    unmoved in both environments, tells the compiler from the operator."""
    cells = [
        cell
        for cell in case.moved
        if cell.compiled is not None
        and cell.compiled.state == DIFFERS
        and cell.inputs.state == SAME
        and cell.bits.state == DIFFERS
    ]
    plain = [cell.plain for cell in cells if cell.plain is not None]
    if not cells or any(each.moved for each in plain):
        return None
    made = cells[0].compiled
    assert made is not None
    stays = [each.seen for each in plain if each.seen is not None]
    unmoved = stays[0] if len(stays) == len(cells) else None
    return Finding(
        cells=cells,
        shown=Shown.HINT if case.unsteady else Shown.FOLLOWED if unmoved else Shown.TOGETHER,
        needs={"what runs around the generated code": None},
        out={Rival.PLAIN_OPERATOR: unmoved},
        seen=[cells[0].seen(made.generated_text, made.record), unmoved],
    )


# -- what versions compute differently by intent ----------------------------------------------------------

DEFINE = (
    "write down what it should compute, as `def truth(...)` in a problem file, then run again: both versions are then "
    "judged by it"
)
PASS_DRAWS = "draw the numbers in get_inputs() and pass them to forward(), so that both versions get the same"


def concerns(row: Comparison) -> bool:
    """Return whether a row is about what versions compute, and not about how well."""
    return row.correctness.meaning is not None or row.correctness.verdict == model.OTHER_DRAWS


def meaning_changed(case: CaseFacts) -> Finding:
    """Explain rows of one case that all `concern` another meaning, by the first of them."""
    cell = case.cells[0]
    meaning, values, shown = cell.row.correctness.meaning, "", ""
    fix = PASS_DRAWS
    if meaning is not None:
        values = meaning_text(meaning, *case.versions)
        named = dict(zip(case.environments, case.versions, strict=True))
        fix = "" if meaning.by else DEFINE
        shown = evidence_text(meaning.by, named[meaning.right]) if meaning.by else ""
    words = {"values": values, "shown": shown}
    return Finding(cells=case.cells, shown=Shown.FOLLOWED, crossed=[cell.target], fix=fix, words=words)
