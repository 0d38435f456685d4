"""Rules for a tolerance that does not fit: it refuses what is as exact as its dtype allows, or lets a fault through.
Pure.
"""

from __future__ import annotations

import math

from harness.worker import protocol
from reports.attribute import figures, thresholds
from reports.attribute.cases import Case
from reports.attribute.cells import Cell
from reports.attribute.making import dtypes_of, make, steady_rivals, was_so
from reports.attribute.model import DECISIVE, STRONG, TOLERANCE_TOO_LOOSE, TOLERANCE_TOO_TIGHT, Cause, Ruled
from reports.model import Seen


def _decides(cell: Cell) -> str:
    return cell.sides[1].decides or cell.sides[0].decides


def tolerance_too_tight(case: Case) -> Cause | None:
    """Wrong by the rule, right by what the dtype can hold, on both sides alike."""
    cells = [
        cell
        for cell in case.cells
        if (all(cell.wrong) or (cell.row.alone and cell.wrong[1]))
        and all(units is not None and units <= _faithful_units(cell, side) for side, units in enumerate(cell.units))
        and not any(side.nonfinite_trials or side.unwritten_trials or side.inputs_mutated for side in cell.sides)
    ]
    if not cells:
        return None
    cell = cells[0]
    others = _also_fail(cell)
    largest = max(units for each in cells for units in each.units if units is not None)
    rule = _decides(cell)
    limit = cell.limit(rule)
    within = largest <= thresholds.FAITHFUL_UNITS
    model = "as the model that it replaces" if case.is_kernel else "as its operators are"
    exact = "as its dtype allows" if within else model
    cost = "correct rounding costs 1" if within else "what the model's own rounding costs"
    evidence = [
        Seen(
            text=f"largest error anywhere: {largest:.3g} units; the rule {rule}"
            + (f" ({limit:g})" if limit is not None else "")
            + " refuses that",
            record=cell.record,
        ),
        *others,
        *was_so(cells),
    ]
    return make(
        case,
        TOLERANCE_TOO_TIGHT,
        DECISIVE if others and within and not case.unsteady else STRONG,
        f"{case.subject} is as exact {exact}, and the rule {rule} refuses it: the tolerance is too tight "
        f"for {_dtype(case, cells)}.",
        cells,
        evidence,
        ruled=[
            Ruled(
                rival="a wrong algorithm",
                how=f"at most {largest:.3g} units; {cost}",
                record=cell.record,
            ),
            *steady_rivals(case),
        ],
        figures=[figures.cells_figure(f"Trials within {rule}, and the error in units", cells)],
    )


def _faithful_units(cell: Cell, number: int) -> float:
    """An error of so many units is no fault there. Of a problem, whose arithmetic is not known, it is what its own
    `Model` costs, or twice that, where the rule refuses that one too."""
    record, rule = cell.validations[number], _decides(cell)
    units = [
        agreement.max_units
        for recipe in (record.recipes if record else [])
        for target in recipe.targets
        for agreement in target.against
        if target.target == protocol.MODEL and agreement.against == protocol.TRUTH
        if agreement.passed.get(rule, recipe.trials) < recipe.trials
    ]
    known = [each for each in units if each is not None]
    if not known or len(known) < len(units) or max(known) > _loosest(cell):
        return thresholds.FAITHFUL_UNITS
    return max(thresholds.FAITHFUL_UNITS, thresholds.AS_THE_MODEL * max(known))


def _loosest(cell: Cell) -> float:
    """A model may be as far off as it is where the kernel is right on the same numbers in float64."""
    right = cell.wider and all(conditions.right_when_wider for conditions in cell.wider)
    return math.inf if right else thresholds.LOOSEST_UNITS


def _also_fail(cell: Cell) -> list[Seen]:
    """References that are faithful too, and fail the same rule against the truth."""
    record = cell.validations[1] or cell.validations[0]
    found, rule = [], _decides(cell)
    most = _loosest(cell)
    for recipe in record.recipes if record else []:
        for target in recipe.targets:
            if target.target in (protocol.KERNEL, cell.target):
                continue
            for agreement in target.against:
                passed, units = agreement.passed.get(rule), agreement.max_units
                if agreement.against != protocol.TRUTH or passed is None or units is None:
                    continue
                if passed < recipe.trials and units <= (
                    most if target.target == protocol.MODEL else thresholds.FAITHFUL_UNITS
                ):
                    text = (
                        f"{target.target}, at {units:.3g} units, fails it too: {passed}/{recipe.trials} {recipe.recipe}"
                    )
                    found.append(Seen(text=text, record=cell.record))
    return found[:2]


def tolerance_too_loose(case: Case) -> Cause | None:
    """Passes the rule that decides, and is many units from the truth."""
    if not case.is_kernel:
        return None
    cells = [cell for cell in case.cells if _through_the_net(cell)]
    if not cells:
        return None
    cell = cells[0]
    rule, limit = _decides(cell), cell.limit("rounding")
    largest = max(units for each in cells for units in each.units if units is not None)
    best = _best_reference(cell)
    evidence = [
        Seen(
            text=f"largest error: {largest:.3g} units; the rule {rule} lets it pass",
            record=cell.record,
        )
    ]
    if best is not None:
        evidence.append(Seen(text=f"the best reference is at {best:.3g} units on the same inputs", record=cell.record))
    for each in cells[:4]:
        side = each.sides[1]
        rounding = [rate for recipe in side.recipes for rate in recipe.rates if rate.rule == "rounding"]
        if rounding:
            passed, trials = sum(rate.passed for rate in rounding), sum(rate.trials for rate in rounding)
            text = f"{each.workload}: {passed}/{trials} trials within {limit:g} units" if limit else f"{each.workload}"
            evidence.append(Seen(text=text, record=each.record))
    return make(
        case,
        TOLERANCE_TOO_LOOSE,
        DECISIVE
        if best is not None and best * thresholds.NET < largest and limit and largest > thresholds.BEYOND_LIMIT * limit
        else STRONG,
        f"{case.kernel} passes the rule {rule} and is wrong all the same: the tolerance is too loose for "
        f"{_dtype(case, cells)}.",
        cells,
        evidence,
        ruled=[Ruled(rival="rounding", how=f"{largest:.3g} units are not what rounding costs", record=cell.record)],
        figures=[figures.cells_figure(f"Trials within {rule}, and the error in units", cells)],
    )


def _through_the_net(cell: Cell) -> bool:
    sides = [side for side in cell.sides if side.status == "ok" and side.max_units is not None]
    limit = cell.limit("rounding")
    if not sides or limit is None or any(cell.wrong):
        return False
    largest = max(side.max_units for side in sides if side.max_units is not None)
    net = thresholds.LOOSEST_UNITS if _decides(cell) == "rounding" else thresholds.NET * limit
    return largest > net


def _best_reference(cell: Cell) -> float | None:
    record = cell.validations[1] or cell.validations[0]
    units: dict[str, float] = {}
    for recipe in record.recipes if record else []:
        for target in recipe.targets:
            for agreement in target.against:
                if agreement.against == protocol.TRUTH and target.target != protocol.KERNEL and agreement.max_units:
                    units[target.target] = max(units.get(target.target, 0.0), agreement.max_units)
    return min(units.values(), default=None)


def _dtype(case: Case, cells: list[Cell]) -> str:
    return dtypes_of(case, cells) or "this workload"
