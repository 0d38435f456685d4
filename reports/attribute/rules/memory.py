"""Rules for faults in a kernel's memory: what it reads that it should not, and threads that race for it.

Uninitialised memory and a race look alike from outside: both give other bits from call to call. They part where the
memory is filled: what a kernel reads uninitialised then repeats itself and follows the filling; a race does neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.schema.experiment_records import ConditionResult
from harness.worker import protocol
from reports.attribute import causes, figures, thresholds
from reports.attribute.causes import DECISIVE, STRONG, SUGGESTIVE, Cause, Figure, RuledOut
from reports.attribute.evidence import SITES, excluded, finding_seen, hidden, listed, number, repeat_figure
from reports.attribute.facts.cases import CaseFacts
from reports.attribute.facts.cells import CellFacts
from reports.attribute.facts.experiments import Finding, Spread, fails
from reports.attribute.facts.messages import at_null, faulted, outlived
from reports.attribute.wording import make
from reports.model import Seen

KINDS = {
    causes.UNINITIALISED_SHARED: "shared memory",
    causes.UNINITIALISED_GLOBAL: "device memory",
    causes.UNINITIALISED_HOST: "host memory",
}
BUILT = "PyTorch's version and the build"
BEYOND = Seen(
    text="not excluded: it reads beyond its tensors, where the filled memory lies too; no checker could show that"
)


def class_of(site: str, device: str) -> str:
    """A tensor's memory is the device's own: on a CPU it is the host's. What lies around one is nobody's."""
    if site == "around":
        return causes.OUT_OF_BOUNDS
    if site == "shared":
        return causes.UNINITIALISED_SHARED
    of_device = device == "cuda" and site in ("output", "workspace")
    return causes.UNINITIALISED_GLOBAL if of_device else causes.UNINITIALISED_HOST


def _spread_seen(cell: CellFacts, spread: Spread) -> Seen:
    rates = ", ".join(f"{r.condition.pattern or r.condition.label} {r.passed}/{r.runs}" for r in spread.results)
    rates += "".join(f", {pattern} crashed" for pattern in sorted(spread.crashed))
    text = f"with {SITES.get(spread.site, spread.site)} filled before the call, runs within tolerance: {rates}"
    return cell.seen_in(spread.environment, text, spread.path)


def _by_predecessor(cells: Sequence[CellFacts]) -> tuple[list[Seen], list[Figure]]:
    """What is read is what ran before left: errors of another size after others are that, seen from outside."""

    def size(result: ConditionResult) -> str:
        return f"{result.max_units:.3g}" if result.max_units is not None else "NaN"

    seen, drawn = [], []
    for cell in cells:
        for spread in cell.predecessors:
            ran = [result for result in spread.results if result.runs]
            sizes = [result.max_units for result in ran if result.max_units]
            if sizes and max(sizes) >= thresholds.FAR_APART * min(sizes):
                errors = ", ".join(f"{result.condition.label} {size(result)}" for result in ran)
                text = f"largest error in rounding units, by what ran just before: {errors}"
                seen.append(cell.seen_in(spread.environment, text, spread.path))
                drawn.append(figures.spread_figure(f"By what ran just before, {cell.workload}", spread))
    return seen[-1:], drawn[-1:]


def _uninitialised(case: CaseFacts, wanted: str) -> Cause | None:
    spreads = [(c, s) for c, s in case.poison if s.follows and class_of(s.site, case.device) == wanted]
    of_tensors = wanted == class_of("output", case.device)
    left = [cell for cell in case.cells if of_tensors and any(side.unwritten_trials for side in cell.sides)]
    checked = case.findings("uninitialised") if of_tensors else []
    if not spreads and not left and not checked:
        return None
    if not checked and all(spread.site == "output" for _, spread in spreads) and _first_call_writes(case):
        return None
    beyond = _around(case) or any(finding.proven for _, finding in case.findings("out_of_bounds"))
    if wanted != causes.UNINITIALISED_SHARED and beyond:
        return None  # what lies beyond a buffer was filled too
    cells = list(dict.fromkeys([cell for cell, _ in (*spreads, *checked)] + left))
    before, drawn = _by_predecessor(cells)
    evidence = [_spread_seen(cell, spread) for cell, spread in spreads]
    evidence += [*(finding_seen(finding) for _, finding in checked), *before, *hidden(cells)]
    for cell in left:
        trials = max(side.unwritten_trials for side in cell.sides)
        evidence.append(cell.seen(f"in {number(trials, 'trial')} part of the output kept what it held before the call"))
    repeatable = [spread for _, spread in spreads if spread.moves and spread.systematic and spread.settled]
    alone = any(spread.site in ("shared", "output") for spread in repeatable)
    within = case.silence_on("out_of_bounds")
    unlinked = bool(checked and case.failing and not (spreads or left))
    certain = (any(f.proven for _, f in checked) and not unlinked) or bool(repeatable and (alone or within))
    grade = SUGGESTIVE if unlinked else DECISIVE if certain else STRONG
    repeats = "with the memory filled the same way the bits repeat, and only another filling changes them"
    repeats += "; so it is not timing that makes a second run differ" if case.unsteady else ""
    one_process = "one process, one binary and the same input bytes gave all of these outputs"
    harmless = spreads and not any(spread.fails for _, spread in spreads)
    filled = KINDS[wanted].capitalize()
    return make(
        case,
        wanted,
        grade,
        "unwritten" if left and not spreads else "uninitialised",
        cells,
        [*evidence, *([] if certain else [_unlinked(case)] * unlinked + [BEYOND] * bool(spreads))],
        ruled_out=[
            *(RuledOut(rival="a race", how=repeats, record=spread.path) for spread in repeatable[:1]),
            *(RuledOut(rival=BUILT, how=one_process, record=spread.path) for _, spread in spreads[:1]),
            excluded("out of bounds", within),
        ],
        figures=[*(figures.spread_figure(f"{filled} pre-filled, {c.workload}", s) for c, s in spreads[:2]), *drawn],
        group=(grade, str(bool(left and not spreads)), wanted, str(bool(harmless))),
        memory=KINDS[wanted],
        where=_where(case, spreads, left, checked),
        follows=": its output depends on stale data" if spreads else "",
        so_far=" No run has failed because of it yet." if harmless else "",
    )


def _unlinked(case: CaseFacts) -> Seen:
    """Of an access that a checker saw in a kernel that is wrong: both are certain, and that one makes the other not."""
    tried = case.poison[0][1].path if case.poison else ""
    text = "not shown: that the output is wrong because of it. " + (
        "With memory filled otherwise the output stayed the same" if tried else "No run had other contents of memory"
    )
    return Seen(text=text, record=tried)


def _where(
    case: CaseFacts,
    spreads: list[tuple[CellFacts, Spread]],
    left: list[CellFacts],
    checked: list[tuple[CellFacts, Finding]],
) -> str:
    """Said where it shows on both sides: such a fault is older than the upgrade."""
    shown = {side.environment for cell in left for side in cell.sides if side.unwritten_trials}
    shown |= {spread.environment for _, spread in spreads} | {finding.environment for _, finding in checked}
    return ", in both environments" if shown.issuperset(case.environments) and not case.alone else ""


def _first_call_writes(case: CaseFacts) -> bool:
    """Whether a process's first call is right, into an output that is poisoned as any other: it writes all of it. If
    later ones do not, that comes from what the kernel keeps, and their outputs only show it."""
    orders = [order for cell in case.cells for order in cell.call_orders]
    return bool(orders) and all(order.first_right for order in orders)


def uninitialised_shared(case: CaseFacts) -> Cause | None:
    return _uninitialised(case, causes.UNINITIALISED_SHARED)


def uninitialised_global(case: CaseFacts) -> Cause | None:
    return _uninitialised(case, causes.UNINITIALISED_GLOBAL)


def uninitialised_host(case: CaseFacts) -> Cause | None:
    return _uninitialised(case, causes.UNINITIALISED_HOST)


def _around(case: CaseFacts) -> list[tuple[CellFacts, Spread]]:
    """Where its output follows what lies before and behind its inputs, in memory that is filled and not its own. Where
    its bits are left to chance there, and follow another site, that one's contents are all that it may have read."""
    elsewhere = {spread.environment for _, spread in case.poison if spread.site != "around" and spread.follows}
    return [
        (cell, spread)
        for cell, spread in case.poison
        if spread.site == "around" and spread.follows
        if spread.crashes_on_large or spread.settled is not False or spread.environment not in elsewhere
    ]


def out_of_bounds(case: CaseFacts) -> Cause | None:
    checked, around = case.findings("out_of_bounds"), _around(case)
    crashed = [cell for cell in case.cells if any(map(faulted, cell.sides))]
    follows = any(spread.follows for _, spread in case.predecessors)
    kept = case.silence_on("out_of_bounds") or follows or case.keeps_state  # what is kept is met again by place
    shifted = [] if kept else [(cell, path) for cell in case.cells if (path := cell.offset_matters)]
    if not case.is_kernel or not (checked or crashed or shifted or around):
        return None
    cells = list(dict.fromkeys([cell for cell, _ in (*checked, *shifted, *around)] + crashed))
    evidence = [finding_seen(finding) for _, finding in checked]
    for cell in crashed:
        side = next(side for side in reversed(cell.sides) if side.status == protocol.CRASHED)
        evidence.append(cell.seen(side.message, side.record))
    shown = "right if each tensor starts at the beginning of its allocation, wrong if it does not"
    evidence += [cell.seen(shown, path) for cell, path in shifted]
    linked = [_spread_seen(cell, s) for cell, s in case.poison if s.follows and s.site != "shared"]
    evidence += linked
    unlinked = bool(case.failing and not (linked or shifted or crashed))
    proven = any(finding.proven for _, finding in checked)
    proven |= any(spread.moves and spread.settled for _, spread in around)
    filled = [
        figures.spread_figure(f"Memory around its tensors pre-filled, {c.workload}", s)
        for c, s in case.poison
        if s.follows
    ]
    return make(
        case,
        causes.OUT_OF_BOUNDS,
        SUGGESTIVE if unlinked else DECISIVE if proven else STRONG,
        "out_of_bounds",
        cells,
        [*evidence, *[_unlinked(case)] * unlinked, *hidden(cells)],
        ruled_out=[
            excluded("uninitialised memory", case.memory_clean),  # that a checker names this access excludes no other
            excluded("a race", case.silence_on("race")),
        ],
        figures=[figures.inputs_figure(cell) for cell, _ in shifted[:1]] or filled[:1],
        how=" and ".join(_accesses(case)) or ("reads" if around else "reads or writes"),
        what=accessed(case),
        which=f", on {listed(cell.workload for cell in cells)}" if len(cells) < len(case.cells) else "",
    )


def _accesses(case: CaseFacts) -> list[str]:
    """Reads, writes: as far as each checker's finding says which it is."""
    said = [
        {word for word in ("read", "write") if word in finding.finding.text.lower().split()}
        for _, finding in case.findings("out_of_bounds")
    ]
    return [f"{word}s" for word in ("read", "write") if all(said) and any(word in each for each in said)]


def accessed(case: CaseFacts) -> str:
    """Which memory it is, as far as checkers tell."""
    found = [finding.finding for _, finding in case.findings("out_of_bounds")]
    if found and all(map(at_null, found)):
        return "through a null pointer"
    return "memory that was freed or is out of scope" if access_outlived(case) else "memory beyond its tensors"


def access_outlived(case: CaseFacts) -> bool:
    """Whether all that checkers name is memory that was there, and is no longer."""
    found = [finding.finding for _, finding in case.findings("out_of_bounds")]
    return bool(found) and all(map(outlived, found))


def _filled(spread: Spread) -> str:
    return f"with {SITES.get(spread.site, spread.site)}"


def race(case: CaseFacts) -> Cause | None:
    """Where no filling of memory and nothing that is kept explains other bits, and another order of the same additions
    does not."""
    checked = case.findings("race")
    proven = any(finding.proven for _, finding in checked)
    if not checked and not case.unsteady:
        return None
    if not proven and (case.order_of_sums is not None or case.follows_poison or case.keeps_state):
        return None  # a race leaves the rule at times, or a checker that was seen to work finds it
    repeated = [result for _, conditions in case.of("repeat") for result in conditions.ran]
    wrong = bool(case.failing) or any(spread.fails for _, spread in case.poison) or any(map(fails, repeated))
    loose = [(cell, spread) for cell, spread in case.poison if spread.settled is False]
    if not checked and not (wrong and (loose or case.memory_clean)):
        return None
    cells = list(dict.fromkeys([cell for cell, _ in (*checked, *loose)] or case.failing or case.cells))
    grade = DECISIVE if proven and case.unsteady else STRONG if proven or case.unsteady else SUGGESTIVE
    shown = "its outputs differ from call to call on the same inputs" if case.unsteady else "a checker reports it"
    if not proven and case.is_python and not case.brings_code:
        grade = SUGGESTIVE
        shown += ". It has no machine code of its own, so random numbers are as likely a reason"
    astray = any(side.off_stream for cell in case.cells for side in cell.sides)
    if astray and not checked:
        grade = SUGGESTIVE  # work that no call waits for does the same
    silent = None if checked else case.silence_on("race")
    filled = "the bits differ although the memory was filled with the same pattern each time"
    return make(
        case,
        causes.RACE,
        grade,
        "race",
        cells,
        [
            *(finding_seen(finding) for _, finding in checked),
            *([replace(silent, text=f"against a race: {silent.text}")] if silent else []),
            *case.unsteady,
            *(
                cell.seen_in(each.environment, f"{_filled(each)} filled alike, the bits still differ", each.path)
                for cell, each in loose
            ),
            *hidden(cells),
        ],
        ruled_out=[
            RuledOut(rival="uninitialised memory", how=filled, record=loose[0][1].path)
            if loose
            else excluded("uninitialised memory", case.memory_clean),
            excluded("out of bounds", case.silence_on("out_of_bounds")),
        ],
        command=case.explain(case.cells),
        figures=[repeat_figure(case)],
        shown=shown,
    )
