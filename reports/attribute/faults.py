"""Rules for faults of a kernel: what it reads that it should not, threads that race, and what a call does besides
computing.

Uninitialised memory and a race look alike from outside: both give other bits from call to call. They part where the
memory is filled: what a kernel reads uninitialised then repeats itself and follows the filling; a race does neither.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.worker import protocol
from reports.attribute import figures, thresholds
from reports.attribute.cards import Shown, card, excluded
from reports.attribute.cases import CaseFacts
from reports.attribute.causes import UNINITIALISED, Cause, Figure, Kind, Rival, RuledOut
from reports.attribute.cells import CellFacts
from reports.attribute.evidence import SITES, finding_seen, hidden, listed, number, repeat_figure
from reports.attribute.experiments import Conditions, Finding, Spread, fails, followed
from reports.attribute.messages import at_null
from reports.attribute.trials import Follows, Varied
from reports.attribute.words import Says
from reports.model import Seen

MEMORY_NAMES = dict(zip(UNINITIALISED, ("shared memory", "device memory", "host memory"), strict=True))
BEYOND = "it reads beyond its tensors, where the filled memory lies too; no checker could show that"
UNLINKED = "that the output is wrong because of it"


def class_of(site: str, device: str) -> Kind:
    """Return what a read of filled memory is. A tensor's memory is the device's own: on a CPU it is the host's. What
    lies around a tensor is nobody's."""
    if site == "around":
        return Kind.OUT_OF_BOUNDS
    if site == "shared":
        return Kind.UNINITIALISED_SHARED
    of_device = device == "cuda" and site in ("output", "workspace")
    return Kind.UNINITIALISED_GLOBAL if of_device else Kind.UNINITIALISED_HOST


def _spread_seen(cell: CellFacts, spread: Spread) -> Seen:
    rates = ", ".join(f"{r.condition.pattern or r.condition.label} {r.passed}/{r.runs}" for r in spread.results)
    rates += "".join(f", {pattern} crashed" for pattern in sorted(spread.crashed))
    text = f"with {SITES.get(spread.site, spread.site)} filled before the call, runs within tolerance: {rates}"
    return cell.seen_in(spread.environment, text, spread.path)


def _by_predecessor(cells: Sequence[CellFacts]) -> tuple[list[Seen], list[Figure]]:
    """What is read is what ran before left: errors of another size after others are that, seen from outside."""
    seen, drawn = [], []
    for cell in cells:
        for spread in cell.predecessors:
            ran = [result for result in spread.results if result.runs]
            sizes = [result.max_units for result in ran if result.max_units]
            if sizes and max(sizes) >= thresholds.FAR_APART * min(sizes):
                named = ((r.condition.label, "NaN" if r.max_units is None else f"{r.max_units:.3g}") for r in ran)
                errors = ", ".join(f"{label} {size}" for label, size in named)
                text = f"largest error in rounding units, by what ran just before: {errors}"
                seen.append(cell.seen_in(spread.environment, text, spread.path))
                drawn.append(figures.spread_figure(f"By what ran just before, {cell.workload}", spread))
    return seen[-1:], drawn[-1:]


def _uninitialised(case: CaseFacts, wanted: Kind) -> Cause | None:
    spreads = [(c, s) for c, s in case.poison if s.follows and class_of(s.site, case.device) is wanted]
    of_tensors = wanted is class_of("output", case.device)
    left = [cell for cell in case.cells if of_tensors and any(side.unwritten_trials for side in cell.sides)]
    checked = case.findings("uninitialised") if of_tensors else []
    if not spreads and not left and not checked:
        return None
    if not checked and all(spread.site == "output" for _, spread in spreads) and _first_call_writes(case):
        return None
    beyond = _around(case) or any(finding.proven for _, finding in case.findings("out_of_bounds"))
    if wanted is not Kind.UNINITIALISED_SHARED and beyond:
        return None  # what lies beyond a buffer was filled too
    cells = list(dict.fromkeys([cell for cell, _ in (*spreads, *checked)] + left))
    before, drawn = _by_predecessor(cells)
    evidence = [_spread_seen(cell, spread) for cell, spread in spreads]
    evidence += [*(finding_seen(finding) for _, finding in checked), *before, *hidden(cells)]
    for cell in left:
        trials = max(side.unwritten_trials for side in cell.sides)
        evidence.append(cell.seen(f"in {number(trials, 'trial')} part of the output kept what it held before the call"))
    repeatable = [spread for _, spread in spreads if spread.moves and spread.systematic and spread.settled]
    own = any(spread.site in ("shared", "output") for spread in repeatable)
    within = bool(repeatable and (own or case.silence_on("out_of_bounds")))
    unlinked = bool(checked and case.failing and not (spreads or left))
    certain = within or any(finding.proven for _, finding in checked)
    harmless = spreads and not any(spread.fails for _, spread in spreads)
    repeats = "with the memory filled the same way the bits repeat, and only another filling changes them"
    one_process = "one process, one binary and the same input bytes gave all of these outputs"
    return card(
        case,
        wanted,
        Shown.HINT if unlinked else Shown.FOLLOWED,
        Says.UNWRITTEN if left and not spreads else Says.UNINITIALISED,
        cells,
        evidence,
        needs={UNLINKED: not unlinked, BEYOND if spreads else "another reason": certain or unlinked},
        out=[
            *(RuledOut(rival=Rival.CHANCE, how=repeats, record=spread.path) for spread in repeatable[:1]),
            *(RuledOut(rival=Rival.CODE, how=one_process, record=spread.path) for _, spread in spreads[:1]),
        ],
        drawn=[
            *(figures.spread_figure(f"{MEMORY_NAMES[wanted]} pre-filled, {c.workload}", s) for c, s in spreads[:2]),
            *drawn,
        ],
        group=(str((unlinked, certain, bool(left and not spreads), bool(harmless))), wanted),
        memory=MEMORY_NAMES[wanted],
        where=_where(case, spreads, left, checked),
        follows=": its output depends on stale data" if spreads else "",
        so_far=" No run has failed because of it yet." if harmless else "",
    )


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
    return _uninitialised(case, Kind.UNINITIALISED_SHARED)


def uninitialised_global(case: CaseFacts) -> Cause | None:
    return _uninitialised(case, Kind.UNINITIALISED_GLOBAL)


def uninitialised_host(case: CaseFacts) -> Cause | None:
    return _uninitialised(case, Kind.UNINITIALISED_HOST)


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
    crashed = case.faulted
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
    starts = "right if each tensor starts at the beginning of its allocation, wrong if it does not"
    evidence += [cell.seen(starts, path) for cell, path in shifted]
    linked = [_spread_seen(cell, s) for cell, s in case.poison if s.follows and s.site != "shared"]
    unlinked = bool(case.failing and not (linked or shifted or crashed))
    proven = any(finding.proven for _, finding in checked)
    proven |= any(spread.moves and spread.settled is True for _, spread in around)
    title = "Memory around its tensors pre-filled"
    filled = [figures.spread_figure(f"{title}, {c.workload}", s) for c, s in case.poison if s.follows]
    return card(
        case,
        Kind.OUT_OF_BOUNDS,
        Shown.HINT if unlinked else Shown.FOLLOWED,
        Says.OUT_OF_BOUNDS,
        cells,
        [*evidence, *linked, *hidden(cells)],
        needs={UNLINKED: not unlinked, "another reason: no checker that was seen to work shows it": proven or unlinked},
        drawn=[figures.inputs_figure(cell) for cell, _ in shifted[:1]] or filled[:1],
        how=" and ".join(_accesses(case)) or ("reads" if around else "reads or writes"),
        what=_accessed(case),
        which=f", on {listed(cell.workload for cell in cells)}" if len(cells) < len(case.cells) else "",
    )


def _accesses(case: CaseFacts) -> list[str]:
    """Reads, writes: as far as each checker's finding says which it is."""
    said = [
        {word for word in ("read", "write") if word in finding.finding.text.lower().split()}
        for _, finding in case.findings("out_of_bounds")
    ]
    return [f"{word}s" for word in ("read", "write") if all(said) and any(word in each for each in said)]


def _accessed(case: CaseFacts) -> str:
    found = [finding.finding for _, finding in case.findings("out_of_bounds")]
    if found and all(map(at_null, found)):
        return "through a null pointer"
    return "memory that was freed or is out of scope" if case.accessed_what_outlived else "memory beyond its tensors"


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
    differ = "its outputs differ from call to call on the same inputs" if case.unsteady else "a checker reports it"
    draws = not proven and case.is_python and not case.brings_code
    if draws:
        differ += ". It has no machine code of its own, so random numbers are as likely a reason"
    astray = not checked and any(side.off_stream for cell in case.cells for side in cell.sides)
    silent = None if checked else case.silence_on("race")
    same = "the bits differ although the memory was filled with the same pattern each time"
    weak = draws or astray or not (proven or case.unsteady)
    return card(
        case,
        Kind.RACE,
        Shown.HINT if weak else Shown.FOLLOWED,
        Says.RACE,
        cells,
        [
            *(finding_seen(finding) for _, finding in checked),
            *([Seen(text=f"against a race: {silent.text}", record=silent.record)] if silent else []),
            *case.unsteady,
            *hidden(cells),
        ],
        needs={"another reason for other bits": proven and case.unsteady},
        out=[RuledOut(rival=Rival.UNINITIALISED, how=same, record=loose[0][1].path) if loose else None],
        command=case.explain(case.cells),
        drawn=[repeat_figure(case)],
        shown=differ,
    )


# -- what a call does besides computing -------------------------------------------------------------------


def wrong_stream(case: CaseFacts) -> Cause | None:
    """Right wherever nobody else works on the device, so that every trial may pass. A replay of its captured calls
    holds none of them, for they ran at once; or, on a side stream that first waits and then puts the inputs where zeros
    were, it saw the zeros, and on the current one it is right."""
    escaped = [(cell, side.environment) for cell in case.cells for side in cell.sides if side.off_stream]
    aside = [(cell, each) for cell, each in case.of("inputs") if not case.unsteady and _astray(each)]
    if not case.is_kernel or not (escaped or aside):
        return None
    certain, seen = bool(aside), []
    for cell, name in dict.fromkeys(escaped[:4]):
        timings = case.evidence.escaping(cell.cell(name))
        at_once = [timing for timing in timings if timing.escaped]
        certain |= bool(at_once)
        record = case.evidence.launches_pointer(name, cell.kernel, case.device)
        seen.append(cell.seen_in(name, (at_once or timings)[0].hot_message, record))
    text = "right on the current stream; on another one it reads its inputs before that stream has written them"
    alone = "every trial passes where nothing else is on the device"
    return card(
        case,
        Kind.WRONG_STREAM,
        Shown.FOLLOWED,
        Says.WRONG_STREAM,
        [cell for cell, _ in (*escaped, *aside)],
        [*seen, *(cell.seen_in(each.environment, text, each.path) for cell, each in aside[:4])],
        needs={"that its calls were refused for another reason": certain},
        out=[None if case.failing else excluded(Rival.ALGORITHM, alone)],
        drawn=[
            figures.conditions_figure(f"By the stream of the call, {cell.workload}", each.ran, each.path)
            for cell, each in aside[:1]
        ],
        group=("stream", case.kernel),
    )


def _astray(conditions: Conditions) -> bool:
    """Right in every run as validated, and wrong in every run on a side stream: what fails now and then is a race."""
    plain = conditions.as_laid_out
    passed = {each.condition.recipe for each in plain if each.runs} - {r.condition.recipe for r in plain if fails(r)}
    beside = [each for each in conditions.ran if each.condition.stream == "side" and each.condition.recipe in passed]
    return any(each.runs and not each.passed for each in beside)


def writes_inputs(case: CaseFacts) -> Cause | None:
    """It was seen to change what it was given: the next call, and whoever else has them, computes from others."""
    sides = [(cell, side) for cell in case.cells for side in cell.sides if side.inputs_mutated]
    if not case.is_kernel or not sides:
        return None
    changed = "the call had changed its inputs in "
    return card(
        case,
        Kind.INPUTS_MOVED,
        Shown.FOLLOWED,
        Says.WRITES_INPUTS,
        [cell for cell, _ in sides],
        [cell.seen_in(s.environment, changed + number(s.inputs_mutated, "trial"), s.record) for cell, s in sides[:4]],
        group=("writes its inputs", case.kernel),
    )


def keeps_state(case: CaseFacts) -> Cause | None:
    """Another output on the same inputs, by what was called before, and without chance: the same calls in turn give
    the same bits in another process, or all calls but the first give the same."""
    if not case.keeps_state:
        return None
    chance = "of each trial's repeated calls only the first differs"
    again = "the same sequence of calls gives the same bits, call by call, in another fresh process"
    evidence = []
    for cell, order in case.remembered:
        how = "right as the first call of a process, wrong after others"
        if order.differs_within:
            how = "a repeated call on the same inputs gives other bits"
        where = f"{order.environment}, {order.recipe.replace('_', ' ')} inputs"
        evidence.append(cell.seen_in(where, f"{how}; {again}", order.path))
    evidence += [cell.seen_in(each.environment, chance, each.path) for cell, each in case.settling]
    how = again if case.remembered else chance
    return card(
        case,
        Kind.PREDECESSOR_SENSITIVITY,
        Shown.FOLLOWED,
        Says.KEEPS_STATE,
        [cell for cell, _ in (*case.remembered, *case.settling)],
        evidence,
        needs={"chance: one process": case.remembered, Rival.UNINITIALISED: case.memory_clean},
        out=[RuledOut(rival=Rival.CHANCE, how=how, record=evidence[0].record)],
        group=("keeps state", case.kernel),
    )


def drawn_once(case: CaseFacts) -> Cause | None:
    """Each process gives the same bits at each call, and no two give the same: what it computes from is made once, in
    each process anew."""
    found = [(cell, each) for cell in case.cells for each in cell.call_orders if each.drawn and each.fails]
    if not case.is_kernel or not found or case.follows_poison:
        return None
    text = "fresh processes give different bits on all inputs, and each process repeats its own"
    how = "within a process the bits are the same at each call"
    return card(
        case,
        Kind.INPUTS_MOVED,
        Shown.TOGETHER,
        Says.DRAWN_ONCE,
        [cell for cell, _ in found],
        [cell.seen_in(each.environment, f"{len(each.sequences)} {text}", each.path) for cell, each in found[:4]],
        needs={Rival.UNINITIALISED: case.memory_clean},
        out=[RuledOut(rival=Rival.CHANCE, how=how, record=found[0][1].path)],
        group=("drawn once", case.kernel),
    )


def predecessor(case: CaseFacts) -> Cause | None:
    """It says where to look, not what is wrong: see `precedence` for how filled memory makes it a symptom. What differs
    in a fresh process only follows the calls before only where fresh processes agree."""
    spreads = [(c, s) for c, s in case.predecessors if s.follows and (_by_calls(s) or _agree(c, s) is not False)]
    if not spreads:
        return None
    evidence = []
    for cell, spread in spreads:
        rates = ", ".join(f"{result.condition.label} {result.passed}/{result.runs}" for result in spread.results)
        evidence.append(cell.seen(f"runs within tolerance: {rates}", spread.path))
    return card(
        case,
        Kind.PREDECESSOR_SENSITIVITY,
        Shown.FOLLOWED,
        Says.PREDECESSOR,
        [cell for cell, _ in spreads],
        evidence,
        needs={
            Rival.UNINITIALISED: case.memory_clean,
            Rival.CHANCE: all(s.settled and (_by_calls(s) or _agree(cell, s)) for cell, s in spreads),
        },
        drawn=[figures.spread_figure(f"By what ran just before, {cell.workload}", s) for cell, s in spreads[:2]],
    )


def _by_calls(spread: Spread) -> bool:
    warm = [result for result in spread.results if result.condition.before != "fresh"]
    return followed(warm, Varied.CALLS_BEFORE) is Follows.FACTOR


def _agree(cell: CellFacts, spread: Spread) -> bool | None:
    """Whether fresh processes do; None where that was not tried."""
    agree = [order.agree for order in cell.call_orders if order.environment == spread.environment]
    return all(agree) if agree else None


def not_repeatable(case: CaseFacts) -> Cause | None:
    """Every run is right, and they differ: a fault only where the same bits were asked for."""
    cells = [cell for cell in case.cells if any(map(cell.differs_though_right, (0, 1)))]
    if not case.is_kernel or not cells:
        return None
    sized = [seen for seen in (case.order_of_sums, case.silence_on("race")) if seen is not None]
    right = Seen(text="every run of every trial is within tolerance", record=cells[0].record)
    return card(
        case,
        Kind.NOT_REPEATABLE,
        Shown.FOLLOWED,
        Says.NOT_REPEATABLE,
        cells,
        [*case.unsteady[:4], *sized],
        out=[excluded(Rival.ALGORITHM, right)],
        drawn=[repeat_figure(case)],
    )
