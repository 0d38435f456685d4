"""Rules for faults of a kernel: what it reads that it should not, threads that race, and what a call does besides
computing.

Uninitialised memory and a race look alike from outside: both give other bits from call to call. They part where the
memory is filled: what a kernel reads uninitialised then repeats itself and follows the filling; a race does neither.
"""

from __future__ import annotations

from functools import partial

from harness.worker import protocol
from reports.attribute.cases import CaseFacts
from reports.attribute.causes import UNINITIALISED, Kind, Rival
from reports.attribute.cells import CellFacts, hidden
from reports.attribute.experiments import Conditions, Spread, fails, followed
from reports.attribute.finding import Finding, Rule, Shown, first_of
from reports.attribute.messages import at_null
from reports.attribute.trials import Follows, Varied
from reports.model import Seen

MEMORY_NAMES = dict(zip(UNINITIALISED, ("shared memory", "device memory", "host memory"), strict=True))
BEYOND = "it reads beyond its tensors, where the filled memory lies too; no checker could show that"
UNLINKED = "that the output is wrong because of it"
CellSpread = tuple[CellFacts, Spread]


def class_of(site: str, device: str) -> Kind:
    """Return what a read of filled memory is. A tensor's memory is the device's own: on a CPU it is the host's. What
    lies around a tensor is nobody's."""
    if site == "around":
        return Kind.OUT_OF_BOUNDS
    if site == "shared":
        return Kind.UNINITIALISED_SHARED
    of_device = device == "cuda" and site in ("output", "workspace")
    return Kind.UNINITIALISED_GLOBAL if of_device else Kind.UNINITIALISED_HOST


def _uninitialised(kind: Kind, case: CaseFacts) -> Finding | None:
    spreads = [(c, s) for c, s in case.poison if s.follows and class_of(s.site, case.device) is kind]
    of_tensors = kind is class_of("output", case.device)
    left = [cell for cell in case.cells if of_tensors and any(side.unwritten_trials for side in cell.sides)]
    checked = case.findings("uninitialised") if of_tensors else []
    if not spreads and not left and not checked:
        return None
    if not checked and all(spread.site == "output" for _, spread in spreads) and _first_call_writes(case):
        return None
    beyond = _around(case) or any(each.proven for _, each in case.findings("out_of_bounds"))
    if kind is not Kind.UNINITIALISED_SHARED and beyond:
        return None  # what lies beyond a buffer was filled too
    cells = first_of([], spreads, checked) + left
    repeatable = [spread for _, spread in spreads if spread.moves and spread.systematic and spread.settled]
    own = any(spread.site in ("shared", "output") for spread in repeatable)
    within = bool(repeatable and (own or case.silence_on("out_of_bounds")))
    unlinked = bool(checked and case.failing and not (spreads or left))
    certain = within or any(each.proven for _, each in checked)
    shown = {side.environment for cell in left for side in cell.sides if side.unwritten_trials}
    shown |= {spread.environment for _, spread in spreads} | {each.environment for _, each in checked}
    return Finding(
        cells=cells,
        shown=Shown.HINT if unlinked else Shown.FOLLOWED,
        needs={UNLINKED: not unlinked, BEYOND if spreads else "another reason": certain or unlinked},
        out={
            Rival.CHANCE: "with the memory filled the same way the bits repeat" if repeatable else None,
            Rival.CODE: "one process, one binary and the same input bytes gave all outputs" if spreads else None,
        },
        seen=hidden(cells),
        spreads=spreads,
        found=checked,
        words={
            "memory": MEMORY_NAMES[kind],
            "unwritten": bool(left and not spreads),
            "both": shown.issuperset(case.environments) and not case.alone,
            "follows": bool(spreads),
            "harmless": bool(spreads) and not any(spread.fails for _, spread in spreads),
        },
    )


def _first_call_writes(case: CaseFacts) -> bool:
    """Return whether a process's first call is right, into an output that is filled as any other: it writes all of it.
    If later ones do not, that comes from what the kernel keeps, and their outputs only show it."""
    orders = [order for cell in case.cells for order in cell.call_orders]
    return bool(orders) and all(order.first_right for order in orders)


uninitialised_shared: Rule = partial(_uninitialised, Kind.UNINITIALISED_SHARED)
uninitialised_global: Rule = partial(_uninitialised, Kind.UNINITIALISED_GLOBAL)
uninitialised_host: Rule = partial(_uninitialised, Kind.UNINITIALISED_HOST)


def _around(case: CaseFacts) -> list[CellSpread]:
    """Return where its output follows what lies before and behind its inputs, in memory that is not its own. Where its
    bits are left to chance there, and follow another site, that one's contents are all that it may have read."""
    elsewhere = {spread.environment for _, spread in case.poison if spread.site != "around" and spread.follows}
    return [
        (cell, spread)
        for cell, spread in case.poison
        if spread.site == "around" and spread.follows
        if spread.crashes_on_large or spread.settled is not False or spread.environment not in elsewhere
    ]


def out_of_bounds(case: CaseFacts) -> Finding | None:
    checked, around, crashed = case.findings("out_of_bounds"), _around(case), case.faulted
    follows = any(spread.follows for _, spread in case.predecessors)
    kept = case.silence_on("out_of_bounds") or follows or case.keeps_state  # what is kept is met again by place
    shifted = [] if kept else [(cell, each) for cell in case.cells if (each := cell.offset_matters) is not None]
    if not (checked or crashed or shifted or around):
        return None
    cells = first_of(crashed, checked, shifted, around)
    linked = [(cell, spread) for cell, spread in case.poison if spread.follows and spread.site != "shared"]
    unlinked = bool(case.failing and not (linked or shifted or crashed))
    proven = any(each.proven for _, each in checked)
    proven |= any(spread.moves and spread.settled is True for _, spread in around)
    texts = [each.finding.text.lower().split() for _, each in checked]
    accesses = [f"{word}s" for word in ("read", "write") if _all_say(texts) and any(word in each for each in texts)]
    return Finding(
        cells=cells,
        shown=Shown.HINT if unlinked else Shown.FOLLOWED,
        needs={UNLINKED: not unlinked, "another reason: no checker that was seen to work shows it": proven or unlinked},
        seen=hidden(cells),
        found=checked,
        spreads=linked,
        runs=shifted,
        sides=[(cell, side) for cell in crashed for side in cell.sides if side.status == protocol.CRASHED],
        words={
            "how": " and ".join(accesses) or ("reads" if around else "reads or writes"),
            "null": bool(checked) and all(at_null(each.finding) for _, each in checked),
            "freed": case.accessed_what_outlived,
            "some": len(cells) < len(case.cells),
        },
    )


def _all_say(texts: list[list[str]]) -> bool:
    """Return whether each checker's finding says what the access is."""
    return all("read" in each or "write" in each for each in texts)


def race(case: CaseFacts) -> Finding | None:
    """Where no filling of memory and nothing that is kept explains other bits, and another order of the same additions
    does not."""
    checked = case.findings("race")
    proven = any(each.proven for _, each in checked)
    if not checked and not case.unsteady:
        return None
    if not proven and (case.order_of_sums is not None or case.follows_poison or case.keeps_state):
        return None  # a race leaves the rule at times, or a checker that was seen to work finds it
    repeated = [result for _, conditions in case.of("repeat") for result in conditions.ran]
    wrong = bool(case.failing) or any(spread.fails for _, spread in case.poison) or any(map(fails, repeated))
    loose = [(cell, spread) for cell, spread in case.poison if spread.settled is False]
    if not checked and not (wrong and (loose or case.memory_clean)):
        return None
    draws = not proven and case.is_python and not case.brings_code
    astray = not checked and any(side.off_stream for cell in case.cells for side in cell.sides)
    weak = draws or astray or not (proven or case.unsteady)
    same = "the bits differ although the memory was filled with the same pattern each time"
    return Finding(
        cells=first_of([], checked, loose) or case.failing or case.cells,
        shown=Shown.HINT if weak else Shown.FOLLOWED,
        needs={"another reason for other bits": proven and case.unsteady},
        out={Rival.UNINITIALISED: same if loose else None},
        seen=[*case.unsteady, None if checked else case.silence_on("race"), *hidden(case.cells)],
        found=checked,
        runs=case.of("repeat")[:1],
        words={"reported": not case.unsteady, "draws": draws},
    )


# -- what a call does besides computing -------------------------------------------------------------------


def wrong_stream(case: CaseFacts) -> Finding | None:
    """Right wherever nobody else works on the device, so that every trial may pass. A replay of its captured calls
    holds none of them, for they ran at once; or, on a side stream that first waits and then puts the inputs where zeros
    were, it saw the zeros, and on the current one it is right."""
    escaped = [(cell, side) for cell in case.cells for side in cell.sides if side.off_stream]
    aside = [(cell, each) for cell, each in case.of("inputs") if not case.unsteady and _astray(each)]
    if not (escaped or aside):
        return None
    seen, certain = [], bool(aside)
    for cell, side in escaped[:4]:
        timings = case.evidence.escaping(cell.cell(side.environment))
        at_once = [timing for timing in timings if timing.escaped]
        certain |= bool(at_once)
        record = case.evidence.launches_pointer(side.environment, cell.kernel, case.device)
        seen.append(cell.seen_in(side.environment, (at_once or timings)[0].hot_message, record))
    return Finding(
        cells=first_of([], escaped, aside),
        shown=Shown.FOLLOWED,
        needs={"that its calls were refused for another reason": certain},
        out={Rival.ALGORITHM: None if case.failing else "every trial passes where nothing else is on the device"},
        seen=seen,
        runs=aside,
    )


def _astray(conditions: Conditions) -> bool:
    """Return whether it is right in every run as validated, and wrong in every run on a side stream: what fails now and
    then is a race."""
    plain = conditions.as_laid_out
    passed = {each.condition.recipe for each in plain if each.runs} - {r.condition.recipe for r in plain if fails(r)}
    beside = [each for each in conditions.ran if each.condition.stream == "side" and each.condition.recipe in passed]
    return any(each.runs and not each.passed for each in beside)


def writes_inputs(case: CaseFacts) -> Finding | None:
    """It was seen to change what it was given: the next call, and whoever else has them, computes from others."""
    cells = [cell for cell in case.cells if any(side.inputs_mutated for side in cell.sides)]
    return Finding(cells=cells, shown=Shown.FOLLOWED, words={"how": "writes"}) if cells else None


def keeps_state(case: CaseFacts) -> Finding | None:
    """Another output on the same inputs, by what was called before, and without chance: the same calls in turn give
    the same bits in another process, or all calls but the first give the same."""
    if not case.keeps_state:
        return None
    how = "the same sequence of calls gives the same bits, call by call, in another fresh process"
    return Finding(
        cells=first_of([], case.remembered, case.settling),
        shown=Shown.FOLLOWED,
        needs={"chance: one process": case.remembered, Rival.UNINITIALISED: case.memory_clean},
        out={Rival.CHANCE: how if case.remembered else "of each trial's repeated calls only the first differs"},
        orders=case.remembered,
        runs=case.settling,
        words={"just_before": False},
    )


def drawn_once(case: CaseFacts) -> Finding | None:
    """Each process gives the same bits at each call, and no two give the same: what it computes from is made once, in
    each process anew."""
    found = [(cell, each) for cell in case.cells for each in cell.call_orders if each.drawn and each.fails]
    if not found or case.follows_poison:
        return None
    return Finding(
        cells=first_of([], found),
        shown=Shown.TOGETHER,
        needs={Rival.UNINITIALISED: case.memory_clean},
        out={Rival.CHANCE: "within a process the bits are the same at each call"},
        orders=found,
        words={"how": "drawn once"},
    )


def predecessor(case: CaseFacts) -> Finding | None:
    """It says where to look, not what is wrong: see `precedence` for how filled memory makes it a symptom. What differs
    in a fresh process only follows the calls before only where fresh processes agree."""
    spreads = [(c, s) for c, s in case.predecessors if s.follows and (_by_calls(s) or _agree(c, s) is not False)]
    if not spreads:
        return None
    settled = all(s.settled and (_by_calls(s) or _agree(cell, s)) for cell, s in spreads)
    return Finding(
        cells=first_of([], spreads),
        shown=Shown.FOLLOWED,
        needs={Rival.UNINITIALISED: case.memory_clean, Rival.CHANCE: settled},
        spreads=spreads,
        words={"just_before": True},
    )


def _by_calls(spread: Spread) -> bool:
    warm = [result for result in spread.results if result.condition.before != "fresh"]
    return followed(warm, Varied.CALLS_BEFORE) is Follows.FACTOR


def _agree(cell: CellFacts, spread: Spread) -> bool | None:
    """Return whether fresh processes do; None where that was not tried."""
    agree = [order.agree for order in cell.call_orders if order.environment == spread.environment]
    return all(agree) if agree else None


def not_repeatable(case: CaseFacts) -> Finding | None:
    """Every run is right, and they differ: a fault only where the same bits were asked for."""
    cells = [cell for cell in case.cells if any(map(cell.differs_though_right, (0, 1)))]
    if not cells:
        return None
    right = Seen(text="every run of every trial is within tolerance", record=cells[0].record)
    return Finding(
        cells=cells,
        shown=Shown.FOLLOWED,
        out={Rival.ALGORITHM: right},
        seen=[*case.unsteady, case.order_of_sums, case.silence_on("race")],
        runs=case.of("repeat")[:1],
    )
