"""Rules for what a call does besides computing: it works on another stream or GPU than its own, changes its inputs,
keeps something for the next call, draws something once for each process, or gives other bits each time.
"""

from __future__ import annotations

from reports.attribute import causes, figures
from reports.attribute.causes import DECISIVE, STRONG, SUGGESTIVE, Cause, RuledOut
from reports.attribute.evidence import excluded, number, repeat_figure
from reports.attribute.facts.cases import CaseFacts
from reports.attribute.facts.cells import CellFacts
from reports.attribute.facts.experiments import Conditions, Spread, fails, moves
from reports.attribute.wording import make
from reports.model import Seen


def wrong_stream(case: CaseFacts) -> Cause | None:
    """Right wherever nobody else works on the device, so that every trial may pass. A replay of its captured calls
    holds none of them, for they ran at once; or, on a side stream that first waits and then puts the inputs where zeros
    were, it saw the zeros, and on the current one it is right."""
    escaped = [(cell, side.environment) for cell in case.cells for side in cell.sides if side.off_stream]
    aside = [(cell, each) for cell, each in case.of("inputs") if not case.unsteady and _astray(each)]
    if not case.is_kernel or not (escaped or aside):
        return None
    launches = [_launches_seen(case, cell, name) for cell, name in dict.fromkeys(escaped[:4])]
    proven = bool(aside) or any(certain for _, certain in launches)
    text = "right on the current stream; on another one it reads its inputs before that stream has written them"
    passes_alone = RuledOut(rival="the algorithm", how="every trial passes where nothing else is on the device")
    return make(
        case,
        causes.WRONG_STREAM,
        DECISIVE if proven else STRONG,
        "wrong_stream",
        [cell for cell, _ in (*escaped, *aside)],
        [
            *(seen for seen, _ in launches),
            *(cell.seen_in(each.environment, text, each.path) for cell, each in aside[:4]),
        ],
        ruled_out=[] if case.failing else [passes_alone, excluded("chance", case.steady)],
        figures=[
            figures.conditions_figure(f"By the stream of the call, {cell.workload}", each.ran, each.path)
            for cell, each in aside[:1]
        ],
        group=("stream", case.kernel),
    )


def _launches_seen(case: CaseFacts, cell: CellFacts, environment: str) -> tuple[Seen, bool]:
    """What launches show of it, and whether they saw that it ran at once."""
    timings = case.evidence.escaping(cell.cell(environment))
    certain = [timing for timing in timings if timing.escaped]
    record = case.evidence.launches_pointer(environment, cell.kernel, case.device)
    return cell.seen_in(environment, (certain or timings)[0].hot_message, record), bool(certain)


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
    return make(
        case,
        causes.INPUTS_MOVED,
        DECISIVE,
        "writes_inputs",
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
    return make(
        case,
        causes.PREDECESSOR_SENSITIVITY,
        DECISIVE if case.remembered and case.memory_clean else STRONG,
        "keeps_state",
        [cell for cell, _ in (*case.remembered, *case.settling)],
        evidence,
        ruled_out=[
            RuledOut(rival="a race", how=how, record=evidence[0].record),
            excluded("uninitialised memory", case.memory_clean),
        ],
        group=("keeps state", case.kernel),
    )


DRAWN = "fresh processes give different bits on all inputs, and each process repeats its own"


def drawn_once(case: CaseFacts) -> Cause | None:
    """Each process gives the same bits at each call, and no two give the same: what it computes from is made once, in
    each process anew."""
    found = [(cell, each) for cell in case.cells for each in cell.call_orders if each.drawn and each.fails]
    if not case.is_kernel or not found or case.follows_poison:
        return None
    how = "within a process the bits are the same at each call"
    return make(
        case,
        causes.INPUTS_MOVED,
        STRONG if case.memory_clean else SUGGESTIVE,
        "drawn_once",
        [cell for cell, _ in found],
        [cell.seen_in(each.environment, f"{len(each.sequences)} {DRAWN}", each.path) for cell, each in found[:4]],
        ruled_out=[
            RuledOut(rival="a race", how=how, record=found[0][1].path),
            excluded("uninitialised memory", case.memory_clean),
        ],
        group=("drawn once", case.kernel),
    )


def predecessor(case: CaseFacts) -> Cause | None:
    """Alone it says where to look, not what is wrong: see `precedence` for how poison makes it a symptom. What differs
    in a fresh process alone follows the calls before only where fresh processes agree."""
    spreads = [(c, s) for c, s in case.predecessors if s.follows and (_by_calls(s) or _agree(c, s) is not False)]
    if not spreads:
        return None
    evidence = []
    for cell, spread in spreads:
        rates = ", ".join(f"{result.condition.label} {result.passed}/{result.runs}" for result in spread.results)
        evidence.append(cell.seen(f"runs within tolerance: {rates}", spread.path))
    certain = all(spread.settled and (_by_calls(spread) or _agree(cell, spread)) for cell, spread in spreads)
    return make(
        case,
        causes.PREDECESSOR_SENSITIVITY,
        DECISIVE if case.memory_clean and certain else STRONG,
        "predecessor",
        [cell for cell, _ in spreads],
        evidence,
        ruled_out=[excluded("uninitialised memory", case.memory_clean), excluded("a race", case.steady)],
        figures=[figures.spread_figure(f"By what ran just before, {cell.workload}", s) for cell, s in spreads[:2]],
    )


def _by_calls(spread: Spread) -> bool:
    return bool(moves([result for result in spread.results if result.condition.before != "fresh"]))


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
    return make(
        case,
        causes.NOT_REPEATABLE,
        DECISIVE,
        "not_repeatable",
        cells,
        [*case.unsteady[:4], *sized],
        ruled_out=[excluded("a wrong result", right)],
        figures=[repeat_figure(case)],
    )
