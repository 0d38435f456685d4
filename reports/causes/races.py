"""The rules for bits that differ from call to call: a race, where no filling of memory and nothing kept explains them,
and another order of the same additions does not; and who asked for the same bits. Pure.
"""

from __future__ import annotations

from collections.abc import Callable

from reports.causes import figures
from reports.causes.cases import Case
from reports.causes.checked import PLACES, finding_seen, findings_of, hidden, silence_on
from reports.causes.making import excluded, make
from reports.causes.model import DECISIVE, NOT_REPEATABLE, RACE, STRONG, SUGGESTIVE, Cause, Figure, Ruled
from reports.causes.state import keeps_state
from reports.model import Seen


def race(case: Case) -> Cause | None:
    checked = findings_of(case, "race")
    proven = any(finding.proven for _, finding in checked)
    if not checked and not case.unsteady:
        return None
    if case.order_of_sums is not None and not proven:
        return None  # a race leaves the rule at times, or a checker that was seen to work finds it
    explained = any(spread.follows for _, spread in case.poison)
    if (explained or keeps_state(case) is not None) and not proven:
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


RULES: tuple[Callable[[Case], Cause | None], ...] = (race, not_repeatable)
