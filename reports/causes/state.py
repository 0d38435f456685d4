"""Rules for a kernel whose output is no function of its inputs: a call changes them, or what it keeps for the next one,
or something is drawn once for a process. Pure.
"""

from __future__ import annotations

from collections.abc import Callable

from reports.causes import figures, observed
from reports.causes.cases import Case
from reports.causes.cells import Cell
from reports.causes.history import History
from reports.causes.making import excluded, make, number
from reports.causes.model import (
    DECISIVE,
    INPUTS_MOVED,
    PREDECESSOR_SENSITIVITY,
    STRONG,
    SUGGESTIVE,
    Cause,
    Ruled,
)
from reports.causes.observed import Spread
from reports.model import Seen


def writes_inputs(case: Case) -> Cause | None:
    """It was seen to change what it was given: the next call, and whoever else has them, computes from others."""
    cells = [cell for cell in case.cells if any(side.inputs_mutated for side in cell.sides)]
    if not case.is_kernel or not cells:
        return None
    sides = [(cell, side) for cell in cells for side in cell.sides if side.inputs_mutated]
    return make(
        case,
        INPUTS_MOVED,
        DECISIVE,
        f"{case.kernel} writes to its inputs: whatever is computed from them next is computed from other numbers.",
        cells,
        [
            Seen(
                text=f"{cell.workload} in {side.environment}: the inputs had changed after "
                f"{number(side.inputs_mutated, 'trial')}",
                record=side.record,
            )
            for cell, side in sides[:4]
        ],
        command=case.explain(cells),
        gist=("writes its inputs", case.kernel),
    )


def keeps_state(case: Case) -> Cause | None:
    """Another output on the same inputs, by what was called before, and without chance: the same calls in turn give
    the same bits in another process, or all calls but the first give the same."""
    if any(spread.follows for _, spread in case.poison):
        return None
    told = [(cell, history) for cell in case.cells for history in cell.histories if history.remembers]
    settling = [
        (cell, conditions)
        for cell in case.cells
        for conditions in cell.repeats
        if observed.settles([result for result in conditions.ran if result.condition.load == "alone"])
    ]
    if not told and not settling:
        return None
    cells = list(dict.fromkeys(cell for cell, _ in (*told, *settling)))
    chance = "of each trial's repeated calls the first alone differs"
    again = "the same sequence of calls gives the same bits, call by call, in another fresh process"
    return make(
        case,
        PREDECESSOR_SENSITIVITY,
        DECISIVE if told and case.memory_clean else STRONG,
        f"{case.kernel}'s output depends on the calls before: the same inputs give other outputs after other calls.",
        cells,
        [
            *(
                Seen(
                    text=f"{cell.workload} in {each.environment}, {each.recipe.replace('_', ' ')} inputs: "
                    f"{_remembered(each)}; {again}",
                    record=each.path,
                )
                for cell, each in told
            ),
            *(
                Seen(text=f"{cell.workload} in {conditions.record.environment}: {chance}", record=conditions.path)
                for cell, conditions in settling
            ),
        ],
        ruled=[
            Ruled(
                rival="a race", how=again if told else chance, record=told[0][1].path if told else settling[0][1].path
            ),
            excluded("uninitialised memory", case.memory_clean),
        ],
        command=case.explain(cells),
        gist=("keeps state", case.kernel),
    )


def _remembered(history: History) -> str:
    if observed.settled(history.sequences) is False:
        return "a call again on the same inputs gives other bits"
    return "right as the first call of a process, wrong after others"


def drawn_once(case: Case) -> Cause | None:
    """Each process gives the same bits at each call, and no two give the same: what it computes from is made once, in
    each process anew."""
    if any(spread.follows for _, spread in case.poison):
        return None
    found = [(cell, each) for cell in case.cells for each in cell.histories if each.drawn and each.fails]
    if not case.is_kernel or not found:
        return None
    cells = list(dict.fromkeys(cell for cell, _ in found))
    return make(
        case,
        INPUTS_MOVED,
        STRONG if case.memory_clean else SUGGESTIVE,
        f"{case.kernel} computes from something that is not the same in any two processes, on the same inputs: what it "
        "draws, or takes from its surroundings, when it is made.",
        cells,
        [
            Seen(
                text=f"{cell.workload} in {each.environment}: {len(each.sequences)} fresh processes give "
                "different bits on all inputs, and each the same again and again",
                record=each.path,
            )
            for cell, each in found[:4]
        ],
        ruled=[
            Ruled(rival="a race", how="within a process the bits are the same at each call", record=found[0][1].path),
            excluded("uninitialised memory", case.memory_clean),
        ],
        command=case.explain(cells),
        gist=("drawn once", case.kernel),
    )


def predecessor(case: Case) -> Cause | None:
    """Alone it says where to look, not what is wrong: see `stories` for how poison makes it a symptom."""
    spreads = [(cell, spread) for cell, spread in case.predecessors if _follows_calls(cell, spread)]
    if not spreads:
        return None
    cells = list(dict.fromkeys(cell for cell, _ in spreads))
    evidence = []
    for cell, spread in spreads:
        told = ", ".join(f"{result.condition.label} {result.passed}/{result.runs}" for result in spread.results)
        evidence.append(Seen(text=f"{cell.workload}: runs within tolerance: {told}", record=spread.path))
    clean = case.memory_clean
    agree = all(_moves_by_calls(spread) or _processes_agree(cell, spread) for cell, spread in spreads)
    return make(
        case,
        PREDECESSOR_SENSITIVITY,
        DECISIVE if clean and agree and all(spread.settled for _, spread in spreads) else STRONG,
        f"{case.kernel}'s output depends on what ran just before it, on the same inputs.",
        cells,
        evidence,
        ruled=[
            excluded("uninitialised memory", clean),
            excluded("a race", case.steady[0] if case.steady else None),
        ],
        command=case.explain(cells),
        figures=[figures.spread_figure(f"{cell.workload}: what ran before", s) for cell, s in spreads[:2]],
    )


def _follows_calls(cell: Cell, spread: Spread) -> bool:
    """What differs in a fresh process alone follows the calls before only where fresh processes agree."""
    return spread.follows and (_moves_by_calls(spread) or _processes_agree(cell, spread) is not False)


def _moves_by_calls(spread: Spread) -> bool:
    return bool(observed.moves([result for result in spread.results if result.condition.before != "fresh"]))


def _processes_agree(cell: Cell, spread: Spread) -> bool | None:
    told = [history.agree for history in cell.histories if history.environment == spread.environment]
    return all(told) if told else None


RULES: tuple[Callable[[Case], Cause | None], ...] = (
    writes_inputs,
    drawn_once,
    predecessor,
    keeps_state,
)
