"""Rules for a kernel whose output is no function of its inputs: a call changes them, or what it keeps for the next one,
something is drawn once for a process, or threads race. A race is told where no filling of memory and nothing that is
kept explains other bits, and another order of the same additions does not. Pure.
"""

from __future__ import annotations

from reports.attribute import figures, observed
from reports.attribute.cases import Case
from reports.attribute.cells import Cell
from reports.attribute.history import History
from reports.attribute.making import PLACES, excluded, finding_seen, findings_of, hidden, make, number, silence_on
from reports.attribute.model import (
    DECISIVE,
    INPUTS_MOVED,
    NOT_REPEATABLE,
    PREDECESSOR_SENSITIVITY,
    RACE,
    STRONG,
    SUGGESTIVE,
    Cause,
    Figure,
    Ruled,
)
from reports.attribute.observed import Spread
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
    told, settling = case.remembered, case.settling
    if not case.keeps_state:
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
    if case.follows_poison:
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
    """Alone it says where to look, not what is wrong: see `precedence` for how poison makes it a symptom."""
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


def race(case: Case) -> Cause | None:
    checked = findings_of(case, "race")
    proven = any(finding.proven for _, finding in checked)
    if not checked and not case.unsteady:
        return None
    if case.order_of_sums is not None and not proven:
        return None  # a race leaves the rule at times, or a checker that was seen to work finds it
    if (case.follows_poison or case.keeps_state) and not proven:
        return None
    wrong = bool(case.failing) or any(spread.fails for _, spread in case.poison) or _fails_repeated(case)
    loose = [(cell, spread) for cell, spread in case.poison if spread.settled is False]
    if not checked and not (wrong and (loose or case.memory_clean)):
        return None
    evidence = [*(finding_seen(finding) for _, finding in checked), *case.unsteady]
    evidence += [
        Seen(
            text=f"{cell.workload}: with {PLACES.get(spread.site, spread.site)} filled alike, the bits differ still",
            record=spread.path,
        )
        for cell, spread in loose
    ]
    cells = [cell for cell, _ in (*checked, *loose)] or case.failing or list(case.cells)
    evidence += hidden(list(dict.fromkeys(cells)))
    grade = DECISIVE if proven and case.unsteady else STRONG if proven or case.unsteady else SUGGESTIVE
    shown = "its outputs differ from call to call on the same inputs" if case.unsteady else "a checker sees it"
    if not proven and case.of_operators:
        grade = SUGGESTIVE
        shown += ". It has no machine code of its own, so random numbers that it draws are as likely"
    return make(
        case,
        RACE,
        grade,
        f"{case.kernel} has a race: {shown}.",
        list(dict.fromkeys(cells)),
        evidence,
        ruled=[
            Ruled(
                rival="uninitialised memory",
                how="the bits differ although the memory was filled with the same pattern each time",
                record=loose[0][1].path,
            )
            if loose
            else excluded("uninitialised memory", case.memory_clean),
            excluded("out of bounds", silence_on(case, "out_of_bounds")),
        ],
        command=case.explain(list(case.cells)),
        figures=[_repeat_figure(case)],
    )


def _fails_repeated(case: Case) -> bool:
    results = [result for cell in case.cells for conditions in cell.repeats for result in conditions.ran]
    return any(result.passed < result.runs for result in results)


def _repeat_figure(case: Case) -> Figure | None:
    for cell in case.cells:
        for conditions in cell.repeats:
            title = f"The same call again, {cell.workload}, in {conditions.record.environment}"
            return figures.conditions_figure(title, conditions.ran, conditions.path)
    for cell, spread in case.poison:
        return figures.spread_figure(f"{cell.workload}: the same call again", spread)
    return None


def not_repeatable(case: Case) -> Cause | None:
    """Every run is right, and they differ: a fault only of who was asked for the same bits."""
    cells = [cell for cell in case.cells if any(map(cell.refuses_bits_alone, (0, 1)))]
    if not case.is_kernel or not cells:
        return None
    sized = [seen for seen in (case.order_of_sums, silence_on(case, "race")) if seen is not None]
    return make(
        case,
        NOT_REPEATABLE,
        DECISIVE,
        f"{case.kernel} is right in every run, and gives other bits from run to run, which is refused: "
        "`deterministic: true` asks for the same ones.",
        cells,
        [*case.unsteady[:4], *sized],
        ruled=[
            excluded("a wrong result", Seen(text="every run of every trial passes the rule", record=cells[0].record))
        ],
        command=case.explain(cells),
        figures=[_repeat_figure(case)],
    )
