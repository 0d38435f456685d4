"""The rule for races: other bits from call to call that no filling of memory and nothing kept explains. Pure."""

from __future__ import annotations

from collections.abc import Callable

from reports.causes import figures
from reports.causes.cases import Case
from reports.causes.checked import PLACES, finding_seen, findings_of, hidden, silence_on
from reports.causes.making import excluded, make
from reports.causes.model import DECISIVE, RACE, STRONG, SUGGESTIVE, Cause, Figure, Ruled
from reports.causes.state import keeps_state
from reports.model import Seen


def race(case: Case) -> Cause | None:
    checked = findings_of(case, "race")
    proven = any(finding.proven for _, finding in checked)
    if not checked and not case.unsteady:
        return None
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


RULES: tuple[Callable[[Case], Cause | None], ...] = (race,)
