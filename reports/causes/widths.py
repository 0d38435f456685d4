"""Rules for kernels in Python that are right where their numbers have wider types. Pure."""

from __future__ import annotations

from collections.abc import Callable

from harness.experiments.records import ConditionResult
from reports.causes import figures
from reports.causes.cases import Case
from reports.causes.making import make, steady_rivals, was_so
from reports.causes.model import DECISIVE, RANGE_OVERFLOW, STRONG, Cause, Ruled
from reports.causes.observed import Conditions
from reports.causes.recipes import PLAIN_RECIPE, as_tested, masks_text, out_of_range
from reports.model import Seen


def right_when_wider(case: Case) -> Cause | None:
    """NaN or infinity, and none where the same code is given the same numbers in a wider type, and right there: what
    it computes is right, and a number on the way has no place in its type, whatever the size of the inputs."""
    found = [
        (cell, conditions)
        for cell in case.cells
        for conditions in cell.wider
        if not cell.first_right(PLAIN_RECIPE) and _only_wider_is_right(conditions)
    ]
    if not found or case.unsteady or out_of_range(case) is not None:
        return None
    cells = list(dict.fromkeys(cell for cell, _ in found))
    path = found[0][1].path
    return make(
        case,
        RANGE_OVERFLOW,
        STRONG,
        f"{case.subject} gives NaN or infinity in its type, and is right in a wider one: a number that it computes "
        "leaves the range of its type.",
        cells,
        [*(Seen(text=f"{cell.workload}: {masks_text(c)}", record=c.path) for cell, c in found[:2]), *was_so(cells)],
        ruled=[
            Ruled(rival="the algorithm", how="the same code is right on the same numbers in float64", record=path),
            *steady_rivals(case),
        ],
        figures=[
            figures.conditions_figure(f"{cells[0].workload}: the same numbers", found[0][1].ran, path),
        ],
    )


def _only_wider_is_right(conditions: Conditions) -> bool:
    full = any(each.nonfinite for each in conditions.ran if each.condition == as_tested(each))
    return full and conditions.right_when_wider


def right_in_wider_integers(case: Case) -> Cause | None:
    """Wrong, and right where the same file gets 64 bits wherever it asks PyTorch for integers of fewer: one of
    those wraps. What is rounded or clamped to a whole number on purpose stays as wrong as it was."""
    found = [
        (cell, conditions)
        for cell in case.cells
        for conditions in cell.wider
        if not cell.first_right(PLAIN_RECIPE) and _only_integers_matter(conditions)
    ]
    if not case.is_kernel or not found or case.unsteady:
        return None
    cells = list(dict.fromkeys(cell for cell, _ in found))
    path = found[0][1].path
    certain = case.memory_clean and case.steady and all(cell.first_right(PLAIN_RECIPE) is False for cell in cells)
    return make(
        case,
        RANGE_OVERFLOW,
        DECISIVE if certain else STRONG,
        f"{case.kernel} is right where it is given integers of 64 bits in place of the narrower ones that it asks "
        "for: one of these leaves the range of its type.",
        cells,
        [*(Seen(text=f"{cell.workload}: {masks_text(c)}", record=c.path) for cell, c in found[:2]), *was_so(cells)],
        ruled=[
            Ruled(rival="the algorithm", how="the same code is right with wider integers", record=path),
            *steady_rivals(case),
        ],
        figures=[figures.conditions_figure(f"{cells[0].workload}: the same numbers", found[0][1].ran, path)],
    )


def _only_integers_matter(conditions: Conditions) -> bool:
    """Wrong as validated and when it is made anew in the same way, and right in every run with wide integers."""
    validated = [each for each in conditions.ran if each.condition == as_tested(each)]
    control, wide = (
        [each for each in conditions.ran if each.condition.integers == asked] for asked in ("as_asked", "int64")
    )
    wrong = validated and control and not any(map(_right, (*validated, *control)))
    return bool(wrong and wide) and all(map(_right, wide))


def _right(result: ConditionResult) -> bool:
    return result.runs > 0 and result.passed == result.runs


RULES: tuple[Callable[[Case], Cause | None], ...] = (right_when_wider, right_in_wider_integers)
