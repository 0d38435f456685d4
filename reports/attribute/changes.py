"""Rules for what changed between the two environments: inputs, builds, code, packages, variables and PyTorch itself.

Object code that was built in one environment and run in the other holds one of the two fixed, as variables, packages
and versions do that were tried both ways; without that, a hash of the disassembly says whether the code moved at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packaging.version import InvalidVersion, Version

from harness.schema.environment_records import EnvironmentRecord
from harness.schema.packages import counts, only_packages
from harness.worker import protocol
from reports import model
from reports.attribute import causes, figures
from reports.attribute.cards import Shown, card, card_of_time, excluded
from reports.attribute.cases import CaseFacts
from reports.attribute.causes import THIS, Cause, Figure, Kind, Rival, RuledOut
from reports.attribute.cells import CellFacts, Reference, backends, operators_moved
from reports.attribute.evidence import became, dtypes_of, in_words, listed, share
from reports.attribute.figures import package_text
from reports.attribute.messages import asserted, died
from reports.attribute.times import TimeChange
from reports.attribute.trials import Exchange, Follows, Varied
from reports.attribute.words import Says
from reports.compare.differences import VARIABLE
from reports.compare.factors import DIFFERS, SAME, UNKNOWN, operators_seen
from reports.compare.meaning import evidence_text, meaning_text
from reports.model import Comparison, Seen
from reports.text import apart, bisect_command


def inputs_moved(case: CaseFacts) -> Cause | None:
    cells = [cell for cell in case.cells if cell.inputs.state == DIFFERS]
    if not cells or case.alone:
        return None
    return card(
        case,
        Kind.INPUTS_MOVED,
        Shown.FOLLOWED,
        Says.INPUTS_MOVED,
        cells,
        [cell.seen(cell.inputs.seen.text, cell.inputs.seen.record) for cell in cells[:6]],
        drawn=[figures.cells_figure("Trials within tolerance, on other inputs", cells)],
        group=("inputs", case.environment),
    )


def broken_environment(case: CaseFacts) -> Cause | None:
    stack = next((stack for stack in reversed(case.stacks) if stack is not None and stack.status != "ok"), None)
    if stack is None:
        return None
    return card(
        case,
        Kind.ENVIRONMENT_CONFOUNDER,
        Shown.FOLLOWED,
        Says.BROKEN_ENVIRONMENT,
        case.cells,
        [Seen(text=stack.message or stack.status, record=f"environments/{stack.id}.json")],
        group=("environment", stack.id),
        environment=stack.id,
        why=stack.message or stack.status.replace("_", " "),
    )


# -- the kernel's code, and where it runs -----------------------------------------------------------------

SWAPPED = {
    Follows.FACTOR: "right or wrong depends on the object code, in whichever environment it runs",
    Follows.PLACE: "right or wrong depends on the environment that runs it, whichever object code runs",
    Follows.NEITHER: "called by itself, its object code does not fail as it did in validation",
    Follows.BOTH: "right or wrong depends on neither the object code nor the environment alone",
}
HEADERS = (
    "PyTorch's headers, whose code is compiled into it and differs between versions, and the operators that it calls"
)


def _swap_seen(case: CaseFacts) -> list[Seen]:
    if case.swap is None:
        return []
    cell, swap = case.swap
    names = [name for ran in swap.cells.values() for name in ran.runtime.split(", ") if name]
    loaded = f" (runtime libraries: {listed(names, most=6)})" if names else ""
    return [cell.seen(f"{SWAPPED.get(case.swap_follows, '')}{loaded}", swap.path)]


def _swap_figures(case: CaseFacts, cells: list[CellFacts]) -> list[Figure | None]:
    swapped = figures.exchange_figure(case.swap[1]) if case.swap else None
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


def code_moved(case: CaseFacts) -> Cause | None:
    cells = case.moved_by_itself
    if not cells or not case.is_kernel or case.code.state != DIFFERS:
        return None
    if case.swap_follows not in (Follows.FACTOR, Follows.UNKNOWN):
        return None
    swapped = case.swap_follows is Follows.FACTOR
    differences = case.build_differences
    headers = not differences and (case.brings_code or any(build and build.binds_itself for build in case.builds))
    around = Seen(text=SWAPPED[Follows.FACTOR], record=case.swap[1].path if case.swap else None)
    same_flags = Seen(text="the same in both builds", record=case.code.seen.record)
    says = Says.LOADED_CODE_MOVED if case.brings_code else Says.SOURCE_COMPILES_OTHERWISE
    ends = f"{'dies' if died(cells[0].sides[1]) else 'no longer dies'} in {case.places[1]}"
    needs: dict[str, object] = {
        Rival.UNINITIALISED: case.memory_clean or (swapped and not case.unsteady),
        Rival.CHANCE: not case.unsteady or (swapped and case.memory_clean),
        HEADERS: not headers or swapped,
    }
    return card(
        case,
        Kind.BUILD_MOVED if differences else Kind.KERNEL_CODE_MOVED,
        Shown.FOLLOWED if swapped else Shown.TOGETHER,
        Says.BUILD_MOVED if differences else says,
        cells,
        [*_moved_seen(cells), case.code.seen, *differences, *_swap_seen(case)],
        needs=needs,
        out=[
            excluded(Rival.SURROUNDINGS, around if swapped else None),
            excluded(Rival.FLAGS, same_flags if not differences and not case.brings_code else None),
        ],
        drawn=_swap_figures(case, cells),
        what=ends if cells[0].dies_on_one_side else became(cells[0]),
        differences=in_words(differences),
    )


OF_WHEELS = "torch_cuda"  # what differs between two of PyTorch's own wheels, whichever version they are


def environment_confounder(case: CaseFacts) -> Cause | None:
    """The result goes with where the kernel runs. Without swapped object code that is said only where the code is the
    same, and memory was tried."""
    cells, follows, code = case.moved_by_itself, case.swap_follows, case.code.state
    if not cells or not case.is_kernel or case.variables_matter:
        return None
    differences = case.differences_left
    if follows is Follows.PLACE:
        shown = Shown.FOLLOWED
        needs: dict[str, object] = {Rival.UNINITIALISED: case.memory_clean, Rival.CHANCE: not case.unsteady}
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
    names = [each.text for each in differences] or ["nothing recorded but PyTorch's own version"]
    seen = [Seen(text=each.text) for each in differences[:8]]
    return card(
        case,
        Kind.ENVIRONMENT_CONFOUNDER,
        shown,
        Says.ENVIRONMENT_CONFOUNDER,
        cells,
        [*_moved_seen(cells), case.code.seen, *_swap_seen(case), *seen],
        needs=needs,
        drawn=_swap_figures(case, cells),
        differences=listed(names),
    )


def runs_text(trials: Exchange, named: str, same: str, names: Mapping[str, str] | None = None) -> str:
    """Return what the four runs gave, in words. `named`: one of them, by {home} and {whose}, environments that `names`
    may give other names."""
    if trials.by_bits:
        return f"right each time, and the same bits in both environments where they {same}"
    told = []
    for place, ran in trials.cells.items():
        home, whose = ((names or {}).get(each, each) for each in place)
        told.append(f"{named.format(home=home, whose=whose)}: {ran.passed}/{ran.runs}")
    return f"runs within tolerance, {', '.join(told)}"


def variables_decide(case: CaseFacts) -> Cause | None:
    """The result goes with the variables, in both environments or in one of them."""
    if case.variable_trials is None or not case.variables_matter:
        return None
    cell, trials = case.variable_trials
    names = [each.text for each in case.variables]
    follows = trials.follows is Follows.FACTOR
    runs = runs_text(trials, "in {home} with the variables of {whose}", "have the same variables")
    what = "gives other bits with the other set" if trials.by_bits else "is right with one set and wrong with the other"
    same = Seen(text=f"the same binary in the same environment {what}", record=trials.path)
    by_fault = case.unsteady and not case.fault_comes_with_variables
    return card(
        case,
        Kind.ENVIRONMENT_CONFOUNDER,
        Shown.HINT if by_fault else Shown.FOLLOWED,
        Says.VARIABLES_DECIDE,
        case.failing or [cell],
        [cell.why, *(Seen(text=text) for text in names), cell.seen(runs, trials.path)],
        needs={Rival.CHANCE: not case.unsteady, "what else is in the environment": follows},
        out=[excluded(Rival.CODE, same)],
        command=case.explain([cell]),
        drawn=[figures.exchange_figure(trials)],
        variables=listed(names),
        where="in both environments, whichever PyTorch and code they have" if follows else "in one of the environments",
    )


# -- packages ---------------------------------------------------------------------------------------------

NOT_BOTH = "PyTorch's own part, for one of the two exchanges could not be run"
SAME_PYTORCH = RuledOut(rival=Rival.PYTORCH, how="the same in both environments")


def sole_of(base: EnvironmentRecord | None, this: EnvironmentRecord | None, device: str) -> Exchange | None:
    """The one package that PyTorch is known to compute with, or that matrix.yaml names, by which two environments of
    one PyTorch differ: they are the experiment. `problems`: what differs besides. None where more differs."""
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


def sole(case: CaseFacts) -> Exchange | None:
    return None if case.alone else sole_of(*case.stacks, case.device)


def others_too(package: Exchange) -> dict[str, object]:
    """The need that nothing else differs."""
    others = ", ".join(package.problems)
    return {f"{others}, which differs too, and which PyTorch is not known to compute with": not others}


def component_moved(case: CaseFacts) -> Cause | None:
    """Results that go with a package, whichever PyTorch it is with; or with both together."""
    found = [
        (cell, each)
        for cell, each, follows in case.exchanged
        if follows is Follows.FACTOR or (follows is Follows.BOTH and each.needs_both)
    ]
    if not found or case.alone:
        return None
    cell, exchange = found[0]
    follows = not exchange.needs_both
    one = len({each.package for _, each in found}) == 1
    alike = [other for other in case.moved if other.verdict == cell.verdict]
    held = Seen(text="held: with either PyTorch, result and package go together", record=exchange.path)
    return card(
        case,
        Kind.COMPONENT_MOVED,
        Shown.FOLLOWED,
        Says.COMPONENT_MOVED if follows else Says.COMPONENT_TOGETHER,
        [cell, *alike],
        [
            cell.why,
            *(cell.seen(put_where(each, case), each.path) for _, each in found),
            *(Seen(text=text, record=exchange.path) for text in exchange.problems),
        ],
        needs={
            NOT_BOTH: not exchange.is_one_way,
            "the rest of the environment": follows and one,
            Rival.CHANCE: not case.unsteady,
            Rival.UNINITIALISED: not case.follows_poison,
        },
        out=[excluded(Rival.PYTORCH, held if follows and one and not exchange.is_one_way else None)],
        drawn=[figures.exchange_figure(exchange)],
        what=became(cell),
        **of_package(case, exchange, cell, "correctness", cell.verdict),
    )


def sole_package(case: CaseFacts) -> Cause | None:
    """Results that moved between environments of one PyTorch that differ in one package."""
    package, moved = sole(case), case.moved
    if package is None or not moved:
        return None
    return card(
        case,
        Kind.COMPONENT_MOVED,
        Shown.FOLLOWED,
        Says.SOLE_PACKAGE,
        moved,
        [moved[0].why],
        needs={
            **others_too(package),
            Rival.CHANCE: not case.unsteady,
            Rival.UNINITIALISED: not case.follows_poison,
        },
        out=[SAME_PYTORCH],
        what=became(moved[0]),
        **of_package(case, package, moved[0], "correctness", moved[0].verdict),
    )


def sole_package_of_time(change: TimeChange) -> Cause | None:
    package = sole(change.case)
    if package is None:
        return None
    return card_of_time(
        change,
        Kind.COMPONENT_MOVED,
        Shown.FOLLOWED,
        Says.SOLE_PACKAGE_OF_TIME,
        [],
        needs=others_too(package),
        out=[SAME_PYTORCH],
        **of_package(change.case, package, change.cells[0], "latency", change.verdict),
    )


def component_of_time(change: TimeChange) -> Cause | None:
    """A time that goes with a package, whichever PyTorch it is with."""
    case = change.case
    timed = [(cell, each) for cell in change.cells for each in cell.exchanges if each.timed]
    found = [(cell, each) for cell, each in timed if case.time_follows(each) is Follows.FACTOR]
    if not found:
        return None
    cell, exchange = found[0]
    both = not exchange.is_one_way and len({each.package for _, each in found}) == 1
    held = Seen(text="held: it made no such difference", record=exchange.path)
    return card_of_time(
        change,
        Kind.COMPONENT_MOVED,
        Shown.FOLLOWED,
        Says.COMPONENT_OF_TIME,
        [
            cell.seen(put_where(exchange, case), exchange.path),
            *(Seen(text=text, record=exchange.path) for text in exchange.problems),
        ],
        needs={NOT_BOTH: both},
        out=[excluded(Rival.PYTORCH, held if both else None)],
        drawn=[figures.exchange_figure(exchange, times=True)],
        **of_package(case, exchange, cell, "latency", change.verdict),
    )


def put_where(exchange: Exchange, case: CaseFacts) -> str:
    """Return which version was put where, of what could be run."""
    base, this = case.versions
    places = (exchange.base, exchange.this), (exchange.this, exchange.base)
    put = [
        f"{version} put into the environment of {where}" if version else f"left out of the environment of {where}"
        for place, version, where in zip(places, exchange.versions[::-1], (base, this), strict=True)
        if place in exchange.cells
    ]
    return f"{exchange.package}: {' and '.join(put)} (run {exchange.run})"


def of_package(case: CaseFacts, package: Exchange, cell: CellFacts, what: str, verdict: str) -> dict[str, Any]:
    """Return what a card says of a package and its versions, its remedy, and the bisection of its releases."""
    name, (one, two) = package.package, package.versions
    with_one, with_two = (package_text(name, version) for version in package.versions)
    got_better = verdict in (model.FIXED, model.MORE_EXACT, model.IMPROVED)
    return {
        "package": name,
        "one": one or "none",
        "two": two or "none",
        "with_one": with_one,
        "with_two": with_two,
        "held": "with the one PyTorch that could be tried" if package.is_one_way else "with either PyTorch",
        "fix": "" if got_better else pinned(name, one),
        "command": _next(case, package, cell.workload, what),
    }


def _next(case: CaseFacts, package: Exchange, workload: str, what: str) -> str:
    """The bisection of the package's releases; '' where its version went down, for it takes the earlier one first."""
    command, (one, two) = case.evidence.run.command, package.versions
    try:
        later = Version(one) < Version(two)
    except InvalidVersion:
        later = False
    if not later or "--bundle" in command:
        return ""
    return bisect_command(
        command,
        component=package.package,
        good=one,
        bad=two,
        torch=case.environment,
        kernel=case.kernel or None,
        workload=workload,
        device=case.device,
        what=what,
    )


def pinned(package: str, version: str) -> str:
    """Return the remedy."""
    return f"{f'pin {package}=={version}' if version else f'leave out {package}'} (packages, in matrix.yaml)"


# -- PyTorch's references ---------------------------------------------------------------------------------


def _same_bits(case: CaseFacts, cell: CellFacts) -> bool:
    """Of what gives other bits from call to call, equal bits in two environments are luck."""
    return cell.bits.state == SAME and not case.unsteady


def _kernel_stays(case: CaseFacts, cell: CellFacts) -> bool:
    against_truth = getattr(cell.sides[1].rate, "against", "") == protocol.TRUTH
    return _same_bits(case, cell) or (cell.verdict == model.PASS and against_truth)


def _counts(cell: CellFacts, reference: Reference) -> bool:
    """Whether this reference's movement changes what can be said of the kernel: more than drift within rounding."""
    decided = reference.name == getattr(cell.sides[1].rate, "against", "")
    judged_otherwise = (reference.base.status == protocol.OK) != (reference.this.status == protocol.OK)
    return judged_otherwise or decided or cell.verdict not in model.RIGHT


def _under_kernel(case: CaseFacts, wanted: Kind) -> Cause | None:
    """Agreement with a reference moved, and it was the reference that moved."""
    swapped = wanted is Kind.DEFAULT_BACKEND_MOVED
    found = [
        (cell, reference)
        for cell in case.cells
        if cell.inputs.state == SAME and _kernel_stays(case, cell)
        for reference in cell.references
        if reference.bits.state == DIFFERS and _counts(cell, reference) and reference.operators_moved == swapped
    ]
    if not case.is_kernel or case.alone or not found:
        return None
    cells = list(dict.fromkeys(cell for cell, _ in found))
    names = tuple(dict.fromkeys(reference.name for _, reference in found))
    evidence = []
    for cell, each in found[:4]:
        one, two = map(share, each.agreed)
        text = f"{case.kernel} agrees with {each.name} in {apart(case.versions, f'{one} trials', f'in {two}')}"
        operators = operators_seen(each.base, each.this, case.versions)
        evidence += [cell.seen(text), cell.bits.seen, each.bits.seen, operators]
    same = all(_same_bits(case, cell) for cell in cells)
    return card(
        case,
        Kind.ENVIRONMENT_CONFOUNDER if case.one_torch else wanted,
        Shown.FOLLOWED,
        Says.ANOTHER_OPERATOR_UNDER if swapped else Says.REFERENCE_MOVED_UNDER,
        cells,
        evidence,
        needs={Rival.CODE: same},
        out=[excluded(Rival.CODE, Seen(text=cells[0].bits.seen.text, record=cells[0].record) if same else None)],
        drawn=[figures.crossing_figure(cells[0], names), figures.cells_figure("Against the truth", cells)],
        group=("under", case.environment, *names),
        under=names,
        references=listed(names),
        fix=causes.FIXES[wanted],
        agreed=_agreed(case, found),
        how="gives the same bits in both environments" if same else "is as right as before, against the float64 truth",
    )


MOST_TOLD = 4  # references, or workloads, whose agreement is told one by one


def _agreed(case: CaseFacts, found: list[tuple[CellFacts, Reference]]) -> str:
    """Between what, and in which direction: over all workloads, or one by one where it rose on some and fell on
    others."""
    told = []
    names = list(dict.fromkeys(reference.name for _, reference in found))
    for name in names:
        known = [(c.workload, *r.agreed) for c, r in found if r.name == name and None not in r.agreed]
        counts = [(w, (one.passed, one.trials), (two.passed, two.trials)) for w, one, two in known if one and two]
        fell = {one[0] * two[1] > two[0] * one[1] for _, one, two in counts if one != two}
        sums = [tuple(map(sum, zip(*(each[side] for each in counts), strict=True))) for side in (1, 2) if counts]
        which = f"{name}: " if len(names) > 1 else ""
        if len(fell) > 1:
            told += [f"{which}{_agreement(case, one, two)} on {w}" for w, one, two in counts if one != two]
        elif sums:
            told.append(which + _agreement(case, sums[0], sums[1]))
    more = f"; and {len(told) - MOST_TOLD} more" if len(told) > MOST_TOLD else ""
    return f": {'; '.join(told[:MOST_TOLD])}{more}" if told else ""


def _agreement(case: CaseFacts, one: tuple[int, ...], two: tuple[int, ...]) -> str:
    """6 of 8 trials agreed with it in 2.1.0, all 8 do in 2.5.0."""
    first, second = (f"all {of}" if passed == of else f"{passed or 'none'} of {of}" for passed, of in (one, two))
    if one == two:
        return f"{first} trials agree with it in both"
    return f"{first} trials agreed with it {apart(case.versions, '', f'{second} do').strip()}"


def reference_moved_under(case: CaseFacts) -> Cause | None:
    return _under_kernel(case, Kind.REFERENCE_MOVED)


def default_moved_under(case: CaseFacts) -> Cause | None:
    return _under_kernel(case, Kind.DEFAULT_BACKEND_MOVED)


HOW_MOVED = {
    frozenset({model.REGRESSED}): "is wrong in {this} and was right in {base}",
    frozenset({model.FIXED}): "was wrong in {base} and is right in {this}",
    frozenset({model.LESS_EXACT}): "is right in both environments, and less exact in {this}",
    frozenset({model.MORE_EXACT}): "is right in both environments, and more exact in {this}",
    frozenset({model.OTHER_TYPE}): "is right in both environments, and gives another type in {this}",
    frozenset({model.REGRESSED, model.LESS_EXACT}): "is wrong in {this} where it was right, or less exact",
    frozenset({model.FIXED, model.MORE_EXACT}): "is right in {this} where it was wrong in {base}, or more exact",
}
MIXED = "is better in {this} on some workloads, and worse on others"


def reference_moved(case: CaseFacts) -> Cause | None:
    """A reference's own verdict against the truth moved: no kernel takes part in that."""
    cells = [cell for cell in case.moved if cell.inputs.state == SAME and cell.bits.state == DIFFERS]
    if case.is_kernel or not cells:
        return None
    swapped = any(operators_moved(*cell.sides) for cell in cells)
    kind = Kind.DEFAULT_BACKEND_MOVED if swapped else Kind.REFERENCE_MOVED
    kind = Kind.OPERATOR_MOVED if case.is_operator else kind
    how = HOW_MOVED.get(frozenset(cell.verdict for cell in cells), MIXED)
    dtypes = dtypes_of(case, cells)
    evidence = []
    for cell in cells[:3]:
        evidence.append(cell.why)
        one, two = cell.units
        if one is not None and two is not None:
            errors = apart(case.versions, f"{one:.3g} rounding units", f"{two:.3g}")
            evidence.append(cell.seen(f"largest error {errors}"))
        evidence += [cell.bits.seen, operators_seen(*cell.sides, case.versions)]
    return card(
        case,
        Kind.ENVIRONMENT_CONFOUNDER if case.one_torch else kind,
        Shown.FOLLOWED,
        Says.REFERENCE_MOVED,
        cells,
        evidence,
        drawn=[figures.recipes_figure(cells[0]), figures.crossing_figure(cells[0], [cells[0].target])],
        group=("reference", case.reference, how, dtypes),
        how=how.format(base=case.versions[0], this=THIS),
        dtypes=dtypes,
        by=", by its definition, truth()" if cells[0].is_defined else "",
    )


def default_moved(case: CaseFacts) -> Cause | None:
    """PyTorch picks another operator for the same call; its outputs stay right."""
    cells = [cell for cell in case.cells if operators_moved(*cell.sides) and not cell.verdict_moved]
    if case.is_kernel or case.reference != "default" or case.one_torch or not cells:
        return None
    right = all(cell.verdict in model.RIGHT for cell in cells)
    by_backends: dict[tuple[str, str], list[CellFacts]] = {}
    for cell in cells:
        one, two = (", ".join(backends(side)) for side in cell.sides)
        by_backends.setdefault((one, two), []).append(cell)
    evidence = [
        Seen(text=f"{apart(case.versions, one, two)}: {listed((c.workload for c in group), 6)}", record=group[0].record)
        for (one, two), group in by_backends.items()
    ]
    return card(
        case,
        Kind.DEFAULT_BACKEND_MOVED,
        Shown.FOLLOWED,
        Says.DEFAULT_MOVED,
        cells,
        evidence,
        drawn=[figures.operators_figure(cells)],
        group=("default", str(right), *backends(cells[0].sides[1])),
        right=", and is still right" if right else "",
    )


def compiled_code_moved(case: CaseFacts) -> Cause | None:
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
    if case.alone or case.one_torch or not cells or any(each.moved for each in plain):
        return None
    cell = cells[0]
    made = cell.compiled
    assert made is not None
    stays = [each.seen for each in plain if each.seen is not None]
    unmoved = stays[0] if len(stays) == len(cells) else None
    return card(
        case,
        Kind.COMPILED_CODE_MOVED,
        Shown.HINT if case.unsteady else Shown.FOLLOWED if unmoved else Shown.TOGETHER,
        Says.COMPILED_CODE_MOVED,
        cells,
        [
            *(each.why for each in cells[:3]),
            cell.seen(made.generated_text, made.record),
            *([unmoved] if unmoved else []),
        ],
        needs={"what runs around the generated code": None},
        out=[excluded(Rival.PLAIN_OPERATOR, unmoved)],
        drawn=[figures.recipes_figure(cell)],
        what=became(cell),
    )


# -- what versions compute differently by intent ----------------------------------------------------------

DEFINE = (
    "write down what it should compute, as `def truth(...)` with the inputs of `forward` in the problem file, then run "
    "again: both versions are then judged by it"
)
DEFINE_OPERATOR = (
    "write the call as a problem file (kernel-matrix new), with what it should compute as `def truth(...)`, then run "
    "again: both versions are then judged by it"
)
PASS_DRAWS = "draw the numbers in get_inputs() and pass them to forward(), so that both versions get the same"


def concerns(row: Comparison) -> bool:
    """Return whether a row is about what versions compute, and not about how well."""
    return row.correctness.meaning is not None or row.correctness.verdict == model.OTHER_DRAWS


def meaning_changed(case: CaseFacts) -> Cause:
    """Explain rows of one case that all `concern` another meaning, by the first of them."""
    cell = case.cells[0]
    meaning, (base, this) = cell.row.correctness.meaning, case.versions
    says, evidence = Says.DRAWS_CHANGED, [each.why for each in case.cells[:3]]
    names: dict[str, Any] = {"fix": PASS_DRAWS}
    if meaning is None:
        evidence.append(cell.bits.seen)
    else:
        says = Says.MEANING_DECIDED if meaning.by else Says.MEANING_CHANGED
        values = meaning_text(meaning, base, this)
        named = dict(zip(case.environments, case.versions, strict=True))
        info = case.evidence.workload(cell.workload)
        own_file = info is not None and info.problem is not None and info.operator is None
        fix = DEFINE_OPERATOR if case.is_operator and not own_file else DEFINE
        names = {
            "values": values[0].upper() + values[1:],
            "shown": evidence_text(meaning.by, named[meaning.right]) if meaning.by else "",
            "fix": "" if meaning.by else fix,
        }
    return card(
        case,
        Kind.MEANING_CHANGED,
        Shown.FOLLOWED,
        says,
        case.cells,
        evidence,
        drawn=[figures.recipes_figure(cell), figures.crossing_figure(cell, [cell.target])],
        **names,
    )
