"""Rules for a tolerance that does not fit: it refuses what is as exact as its dtype allows, or lets a fault through."""

from __future__ import annotations

import math
from collections.abc import Iterator

from harness.schema.records import Agreement, RecipeResult, TargetResult
from harness.worker import protocol
from reports.attribute import causes, figures, thresholds
from reports.attribute.causes import DECISIVE, STRONG, Cause, RuledOut
from reports.attribute.evidence import dtypes_of, steady_rivals, was_so
from reports.attribute.facts.cases import CaseFacts
from reports.attribute.facts.cells import CellFacts
from reports.attribute.wording import make
from reports.model import Seen


def _decides(cell: CellFacts) -> str:
    return cell.sides[1].decides or cell.sides[0].decides


def _largest(cells: list[CellFacts]) -> float:
    return max(units for each in cells for units in each.units if units is not None)


def _against_truth(cell: CellFacts, *sides: int) -> Iterator[tuple[RecipeResult, TargetResult, Agreement]]:
    """Every target's results against the truth, of the first of these sides that was validated."""
    record = next((record for side in sides if (record := cell.validations[side]) is not None), None)
    for recipe in record.recipes if record else []:
        for target in recipe.targets:
            for agreement in target.against:
                if agreement.against == protocol.TRUTH:
                    yield recipe, target, agreement


def tolerance_too_tight(case: CaseFacts) -> Cause | None:
    """Wrong by the rule, right by what the dtype can hold, on both sides alike."""
    cells = [
        cell
        for cell in case.cells
        if (cell.always_wrong or (cell.row.alone and cell.wrong[1]))
        and all(units is not None and units <= _faithful_units(cell, side) for side, units in enumerate(cell.units))
        and not any(side.nonfinite_trials or side.unwritten_trials or side.inputs_mutated for side in cell.sides)
    ]
    if not cells or case.is_operator:  # which is all that could say what its type can hold
        return None
    cell = cells[0]
    others, largest, rule = _also_fail(cell), _largest(cells), _decides(cell)
    limit = cell.limit(rule)
    within = largest <= thresholds.FAITHFUL_UNITS
    limited = f" ({limit:g})" if limit is not None else ""
    cost = "correct rounding costs 1" if within else "what the model's own rounding costs"
    as_model = "as the model that it replaces" if case.is_kernel else "as its operators are"
    text = f"largest error anywhere: {largest:.3g} units; the rule {rule}{limited} refuses it"
    how = f"at most {largest:.3g} units; {cost}"
    return make(
        case,
        causes.TOLERANCE_TOO_TIGHT,
        DECISIVE if others and within and not case.unsteady else STRONG,
        "too_tight",
        cells,
        [Seen(text=text, record=cell.record), *others, *was_so(cells)],
        ruled_out=[RuledOut(rival="the algorithm", how=how, record=cell.record), *steady_rivals(case)],
        figures=[figures.cells_figure(f"Trials within {rule}, and the error in units", cells)],
        exact="as its dtype allows" if within else as_model,
        rule=rule,
        dtypes=dtypes_of(case, cells) or "this workload",
    )


def _faithful_units(cell: CellFacts, side: int) -> float:
    """An error of so many units is no fault there. Of a problem, whose arithmetic is not known, it is what its own
    `Model` costs, or twice that, where the rule refuses that one too."""
    rule = _decides(cell)
    units = [
        agreement.max_units
        for recipe, target, agreement in _against_truth(cell, side)
        if target.target == protocol.MODEL and agreement.passed.get(rule, recipe.trials) < recipe.trials
    ]
    known = [each for each in units if each is not None]
    if not known or len(known) < len(units) or max(known) > _loosest(cell):
        return thresholds.FAITHFUL_UNITS
    return max(thresholds.FAITHFUL_UNITS, thresholds.AS_THE_MODEL * max(known))


def _loosest(cell: CellFacts) -> float:
    """A model may be as far off as it is where the kernel is right on the same numbers in float64."""
    upcast = cell.of("wider")
    return math.inf if upcast and all(each.right_when_upcast for each in upcast) else thresholds.LOOSEST_UNITS


def _also_fail(cell: CellFacts) -> list[Seen]:
    """References that are faithful too, and fail the same rule against the truth."""
    found, rule, most = [], _decides(cell), _loosest(cell)
    for recipe, target, agreement in _against_truth(cell, 1, 0):
        passed, units = agreement.passed.get(rule), agreement.max_units
        if target.target in (protocol.KERNEL, cell.target) or passed is None or units is None:
            continue
        faithful = units <= (most if target.target == protocol.MODEL else thresholds.FAITHFUL_UNITS)
        if passed < recipe.trials and faithful:
            text = f"{target.target}, at {units:.3g} units, fails it too: {passed}/{recipe.trials} {recipe.recipe}"
            found.append(Seen(text=text, record=cell.record))
    return found[:2]


def tolerance_too_loose(case: CaseFacts) -> Cause | None:
    """Passes the rule that decides, and is many units from the truth."""
    cells = [cell for cell in case.cells if _passes_too_far_off(cell)]
    if not case.is_kernel or not cells:
        return None
    cell = cells[0]
    rule, limit, largest, best = _decides(cell), cell.limit("rounding"), _largest(cells), _best_reference(cell)
    evidence = [Seen(text=f"largest error: {largest:.3g} units; the rule {rule} lets it pass", record=cell.record)]
    if best is not None:
        evidence.append(Seen(text=f"the best reference is at {best:.3g} units on the same inputs", record=cell.record))
    for each in cells[:4]:
        rounding = [rate for recipe in each.sides[1].recipes for rate in recipe.rates if rate.rule == "rounding"]
        if rounding and limit:
            passed, trials = sum(rate.passed for rate in rounding), sum(rate.trials for rate in rounding)
            evidence.append(each.seen(f"{passed}/{trials} trials within {limit:g} units"))
    beyond = bool(limit) and largest > thresholds.BEYOND_LIMIT * (limit or 0.0)
    certain = best is not None and best * thresholds.NET < largest and beyond
    how = f"{largest:.3g} units are not what rounding costs"
    return make(
        case,
        causes.TOLERANCE_TOO_LOOSE,
        DECISIVE if certain else STRONG,
        "too_loose",
        cells,
        evidence,
        ruled_out=[RuledOut(rival="rounding", how=how, record=cell.record)],
        figures=[figures.cells_figure(f"Trials within {rule}, and the error in units", cells)],
        rule=rule,
        dtypes=dtypes_of(case, cells) or "this workload",
    )


def _passes_too_far_off(cell: CellFacts) -> bool:
    units = [side.max_units for side in cell.sides if side.status == protocol.OK and side.max_units is not None]
    limit = cell.limit("rounding")
    if not units or limit is None or any(cell.wrong):
        return False
    return max(units) > (thresholds.LOOSEST_UNITS if _decides(cell) == "rounding" else thresholds.NET * limit)


def _best_reference(cell: CellFacts) -> float | None:
    units: dict[str, float] = {}
    for _, target, agreement in _against_truth(cell, 1, 0):
        if target.target != protocol.KERNEL and agreement.max_units:
            units[target.target] = max(units.get(target.target, 0.0), agreement.max_units)
    return min(units.values(), default=None)
