"""Rules for kernels whose result depends on which GPU of the machine holds their tensors. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from harness.experiments.planning import ENDED_BADLY
from harness.experiments.records import ConditionResult
from reports.causes import figures
from reports.causes.cases import Case
from reports.causes.making import make, steady_rivals
from reports.causes.model import MASKED_BY_INPUTS, STRONG, Cause, Ruled
from reports.causes.observed import Conditions
from reports.model import Seen


def on_the_current_gpu_alone(case: Case) -> Cause | None:
    """Right where the current GPU holds the tensors, wrong or ended where another one does: it works on the current one
    whichever that is, or keeps something that belongs to the GPU of its first call. Validation has one GPU: this is
    not why anything moved there."""
    found = [
        (cell, conditions, second)
        for cell in case.cells
        for conditions in cell.places
        if (second := _fails_on_the_second(conditions)) is not None
    ]
    if not case.is_kernel or not found or case.unsteady:
        return None
    cells = list(dict.fromkeys(cell for cell, _, _ in found))
    _, conditions, second = found[0]
    shown = [*_plain(conditions, second), second]
    cause = make(
        case,
        MASKED_BY_INPUTS,
        STRONG,
        f"{case.kernel} is right on the GPU that is current, and not where its tensors are on another one: tests on "
        "one GPU hide that.",
        cells,
        [
            Seen(
                text=f"{cell.workload} in {told.record.environment}: with tensors on a second GPU "
                + (each.message or each.status.replace("_", " ")),
                record=told.path,
            )
            for cell, told, each in found[:4]
        ],
        ruled=[
            Ruled(rival="the numbers", how="the same ones pass on the current GPU", record=conditions.path),
            *steady_rivals(case),
        ],
        command=case.explain(cells),
        figures=[
            figures.conditions_figure(f"{cells[0].workload}: which GPU holds the tensors", shown, conditions.path)
        ],
    )
    return replace(cause, aside=True)


def _plain(conditions: Conditions, second: ConditionResult) -> list[ConditionResult]:
    """On the current GPU, and otherwise the same."""
    return [each for each in conditions.as_laid_out if each.condition.recipe == second.condition.recipe]


def _fails_on_the_second(conditions: Conditions) -> ConditionResult | None:
    for each in conditions.record.results:
        if each.condition.gpu == "second" and (each.status in ENDED_BADLY or each.passed < each.runs):
            plain = _plain(conditions, each)
            return each if plain and all(p.runs and p.passed == p.runs for p in plain) else None
    return None


RULES: tuple[Callable[[Case], Cause | None], ...] = (on_the_current_gpu_alone,)
