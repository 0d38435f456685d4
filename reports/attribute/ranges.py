"""Rules for faults that some inputs show and others hide, and for tolerances that do not fit: large logits, numbers
that leave the range of a type, tensors that are the same one three times, and inputs that lie or come otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from harness.schema.experiment_records import ConditionResult
from harness.schema.records import Agreement, RecipeResult, TargetResult
from harness.worker import protocol
from reports.attribute import figures, thresholds
from reports.attribute.cards import Shown, card, excluded
from reports.attribute.cases import CaseFacts
from reports.attribute.causes import Cause, Kind, Rival
from reports.attribute.cells import INDEPENDENT, LARGE, SHARED, CellFacts
from reports.attribute.evidence import dtypes_of, listed, number, rates_seen, recipes_seen, was_so
from reports.attribute.experiments import Conditions, fails, passes
from reports.attribute.words import Says
from reports.compare.factors import SAME
from reports.model import Seen

SCALED = tuple(protocol.SCALED_RECIPES)
FLAT, OFFSET = "flat_logits", "offset_logits"
LARGER = ("steep_logits", OFFSET)  # than `large_logits`; of the experiment on inputs only
Found = list[tuple[CellFacts, Conditions]]


def _always_wrong_on(cell: CellFacts, recipe: str) -> bool:
    """In both environments, and not only after other calls: see `CellFacts.first_right`."""
    return bool(cell.fails_on(recipe) and (cell.always_wrong or cell.row.alone) and not cell.first_right(recipe))


def range_overflow(case: CaseFacts) -> Cause | None:
    """Right on ordinary inputs, wrong where the logits are large. Shared tensors have large logits too. That is a fault
    of the inputs only where it shows with no call before it: see `CellFacts.first_right`."""
    ordinary = [c for c in case.cells if c.fails_on(INDEPENDENT) is False and not _right_when_only_larger(c)]
    cells = [cell for cell in ordinary if _always_wrong_on(cell, LARGE)]
    tried = [
        (cell, conditions)
        for cell in ordinary
        if cell not in cells and not any(map(cell.first_right, (LARGE, *LARGER)))
        for conditions in cell.of("inputs")
        if _only_large(conditions) or (_overflows(conditions) and not cell.verdict_moved)
    ]
    if not cells and not tried:
        return None
    every = list(dict.fromkeys([*cells, *(cell for cell, _ in tried)]))
    infinite = sum(result.nonfinite_trials for cell in every for result in cell.sides)
    finite = all(_stays_finite(cell) for cell in every)
    evidence = [recipes_seen(cell, [INDEPENDENT, SHARED, LARGE]) for cell in cells[:4]]
    evidence += [rates_seen(cell, conditions) for cell, conditions in tried[:2]]
    overflowed = next((conditions for _, conditions in tried if _overflows(conditions)), None)
    if overflowed is not None:
        runs = number(sum(each.nonfinite for each in overflowed.on(*LARGER)), "run")
        evidence.append(Seen(text=f"NaN or infinity in {runs} where logits are larger still", record=overflowed.path))
    if infinite:
        evidence.append(Seen(text=f"NaN or infinity in {number(infinite, 'trial')}", record=every[0].record))
    if finite:
        evidence.append(Seen(text="finite where logits are larger still, so no floating-point number has overflowed"))
    return card(
        case,
        Kind.RANGE_OVERFLOW,
        Shown.HINT if finite else Shown.FOLLOWED,
        Says.LIMITED_RANGE if finite else Says.RANGE_OVERFLOW,
        every,
        [*evidence, *was_so(every)],
        needs={
            "too few digits, and not the range": infinite or overflowed,
            Rival.CALLS_BEFORE: _wrong_at_once(every),
            Rival.CHANCE: not case.unsteady,
        },
        out=[excluded(Rival.ALGORITHM, "ordinary inputs pass"), excluded(Rival.CALLS_BEFORE, _wrong_at_once(every))],
        drawn=[figures.recipes_figure(every[0]), figures.inputs_figure(every[0])],
    )


def _wrong_at_once(cells: list[CellFacts]) -> Seen | None:
    """That each cell is wrong on such inputs where nothing was called before."""
    orders = [[o for o in cell.call_orders if o.recipe in (LARGE, *LARGER) and not o.first_right] for cell in cells]
    if not all(orders):
        return None
    return Seen(text="such inputs are wrong as the first call of a process, too", record=orders[0][0].path)


def _only_large(conditions: Conditions) -> bool:
    rest = conditions.beside(LARGE, SHARED, *SCALED)
    return any(map(fails, conditions.on(LARGE))) and bool(rest) and not any(map(fails, rest))


def _overflows(conditions: Conditions) -> bool:
    """NaN or infinity where logits are larger than `large_logits` makes them, and nothing wrong on ordinary inputs. A
    finite error does not count: so far out, faithful arithmetic in half runs out of digits too."""
    rest = conditions.beside(LARGE, SHARED, *LARGER, *SCALED)
    overflowed = any(each.nonfinite for each in conditions.on(*LARGER))
    return overflowed and bool(rest) and not any(map(fails, rest))


# -- numbers that leave the range of their type -----------------------------------------------------------


def _always(case: CaseFacts, experiment: str, shows: Callable[[CellFacts, Conditions], bool]) -> Found:
    """Experiments that show something of cells which are not merely wrong after other calls."""
    if case.unsteady:
        return []
    return [
        (cell, conditions)
        for cell, conditions in case.of(experiment)
        if not cell.first_right(INDEPENDENT) and shows(cell, conditions)
    ]


def _out_of_range(case: CaseFacts, found: Found, says: Says, certain: bool, how: str, **names: Any) -> Cause:
    cells = list(dict.fromkeys(cell for cell, _ in found))
    first, conditions = found[0]
    title = f"The same numbers in other types, {first.workload}"
    drawn = figures.conditions_figure(title, conditions.ran, conditions.path)
    return card(
        case,
        Kind.RANGE_OVERFLOW,
        Shown.FOLLOWED,
        says,
        cells,
        [*(rates_seen(*each) for each in found[:2]), Seen(text=how, record=conditions.path), *was_so(cells)],
        needs={"memory, earlier calls, and what is finite": certain},
        out=[excluded(Rival.ALGORITHM, Seen(text=how, record=conditions.path))],
        drawn=[figures.inputs_figure(first) if says is Says.RIGHT_WHEN_SMALLER else drawn],
        **names,
    )


def right_when_smaller(case: CaseFacts) -> Cause | None:
    """Wrong, and right where every input is smaller by a power of two, which rounding takes along exactly: so only a
    number that leaves its type's range can tell the two, or one that an index or a branch is made from, which does not
    give NaN or infinity. That holds where the truth scales with the inputs; else, as where a softmax grows flatter and
    hides what is wrong with it, where the wrong outputs are not finite."""
    found = _always(case, "inputs", lambda cell, conditions: _smaller_is_right(cell, conditions) is not None)
    if not found:
        return None
    smaller = [small for each in found if (small := _smaller_is_right(*each)) is not None]
    scales = all(small.scales for small in smaller)
    infinite = all(any(each.nonfinite for each in _full(conditions)) for _, conditions in found)
    first = all(cell.first_right(INDEPENDENT) is False for cell, _ in found)
    text = "the truth on the smaller inputs is that on the full ones, times a power of two"
    logits = _not_by_logits(found)
    return _out_of_range(
        case,
        found,
        Says.RIGHT_WHEN_SMALLER,
        bool(scales and infinite and first and case.memory_clean),
        text if scales else "NaN or infinity at full size, and none on the smaller inputs",
        fix=WIDER_SUMS if logits else "",
        logits=logits,
        smaller=listed(small.condition.label for small in smaller),
    )


WIDER_SUMS = "compute products and sums of the inputs in a wider type; the exponential of the logits is not what fails"


def _not_by_logits(found: Found) -> str:
    """Said where the size of the logits was varied by itself, and is not what decides: larger ones are right, or
    smaller ones as wrong."""
    larger = [each.condition.label for _, c in found for each in c.on(LARGE, *LARGER) if passes(each)]
    flat = [each for _, conditions in found for each in conditions.on(FLAT)]
    if any(map(passes, flat)) or not (larger or flat):
        return ""
    how = f"right with {listed(larger)}" if larger else f"wrong with {listed(each.condition.label for each in flat)}"
    return f". The size of the logits does not decide: it is {how}"


def _smaller_is_right(cell: CellFacts, conditions: Conditions) -> ConditionResult | None:
    """Judged by units of rounding at either size, whatever rule decides: its tolerance does not shrink with inputs."""
    limit = cell.limit("rounding") or math.inf
    full = _full(conditions)
    if not full or not (full[0].nonfinite or (full[0].max_units or 0.0) > limit):
        return None
    right = filter(passes, conditions.on(*SCALED, FLAT))
    return next((each for each in right if each.scales or full[0].nonfinite), None)


def _full(conditions: Conditions) -> list[ConditionResult]:
    """On ordinary inputs, as they lie in validation."""
    return [each for each in conditions.as_validated if each.condition.recipe == INDEPENDENT]


def right_when_upcast(case: CaseFacts) -> Cause | None:
    """NaN or infinity, and none where the same code is given the same numbers in a wider type, and right there: what
    it computes is right, and a number on the way has no place in its type, whatever the size of the inputs."""
    found = _always(case, "wider", lambda _, c: c.right_when_upcast and any(each.nonfinite for each in c.as_validated))
    how = "the same code is right on the same numbers in float64"
    return _out_of_range(case, found, Says.RIGHT_WHEN_UPCAST, False, how) if found else None


# -- what test inputs hide --------------------------------------------------------------------------------


def _masking(conditions: Conditions) -> bool:
    """As it is tested, the kernel passes; in another layout, or with tensors that are not the same one three times, it
    does not. Large logits are a matter of range, an offset one of bounds, another stream one of the launch."""
    plain = {each.condition.recipe for each in conditions.as_laid_out if passes(each)}
    failing = [each.condition for each in conditions.ran if fails(each)]
    layouts = {each.recipe for each in failing if each.recipe != LARGE and each.layout in ("misaligned", "strided")}
    independent = any(each.recipe == INDEPENDENT and each.layout == "contiguous" for each in failing)
    return bool(layouts & plain) or (SHARED in plain and independent)


TO_LARGE = "test with large logits, too (Q and K several times as large): ordinary inputs do not show this fault"
TO_INDEPENDENT = "test with independent random Q, K and V, which do not hide the fault"


def masked_by_inputs(case: CaseFacts) -> Cause | None:
    cells = [c for c in case.cells if c.fails_on(SHARED) is False and _always_wrong_on(c, INDEPENDENT)]
    hidden = [
        cell
        for cell in case.cells
        if cell not in cells
        and cell.fails_on(INDEPENDENT) is False
        and _always_wrong_on(cell, LARGE)
        and (_right_when_only_larger(cell) or _stays_finite(cell))
    ]
    known = (*cells, *hidden)
    tried = [(cell, c) for cell, c in case.of("inputs") if cell not in known and _masking(c)]
    if not case.is_kernel or not (known or tried) or case.unsteady:
        return None
    every = list(dict.fromkeys([*known, *(cell for cell, _ in tried)]))
    shown = [*((cell, c) for cell in hidden for c in cell.of("inputs")), *tried]
    evidence = [recipes_seen(cell, [SHARED, INDEPENDENT, LARGE]) for cell in known[:4]]
    evidence += [rates_seen(*each) for each in shown[:2]]
    which, fix = _which_inputs(cells, hidden, tried)
    alike = all(cell.bits.state == SAME or cell.row.alone for cell in every)
    first = all(cell.first_right(INDEPENDENT) is False for cell in every if cell.fails_on(INDEPENDENT))
    return card(
        case,
        Kind.MASKED_BY_INPUTS,
        Shown.FOLLOWED,
        Says.MASKED,
        every,
        [*evidence, *was_so(every)],
        needs={
            "a limit of its range": not hidden,
            Rival.UPGRADE: alike,
            Rival.CALLS_BEFORE: first,
            Rival.CHANCE: case.steady or case.memory_clean,
        },
        out=[None if case.alone else excluded(Rival.UPGRADE, every[0].bits)],
        drawn=[figures.recipes_figure(every[0]) if known else None, figures.inputs_figure(every[0])],
        which=which,
        fix=fix,
    )


def _which_inputs(cells: list[CellFacts], hidden: list[CellFacts], tried: Found) -> tuple[str, str]:
    """Return which inputs hide it, and how to test."""
    if cells:
        return "it passes if Q, K and V are one tensor, and fails if they are independent", TO_INDEPENDENT
    large = "it passes on ordinary inputs and fails on large logits, "
    if any(_right_when_only_larger(cell) for cell in hidden):
        return large + "but not because of their size: larger ones that lie close together pass", TO_LARGE
    if hidden:
        return large + "and its outputs stay finite however large these are", TO_LARGE
    wrong = [each.condition.label for _, conditions in tried for each in conditions.ran if fails(each)]
    which = "it passes as it is tested, and fails on inputs of other values or another layout in memory"
    return which, f"test on inputs that show it, too: {listed(wrong)}"


def _right_when_only_larger(cell: CellFacts) -> bool:
    """Wrong on large logits, and not for their size: right where all of them are larger still, by the same amount,
    and finite wherever it was tried. A number that leaves its range is not finite somewhere, and arithmetic, or a
    limit, that large logits are too large for fails on those too."""
    return bool(cell.of("inputs")) and all(map(_pattern_decides, cell.of("inputs")))


def _pattern_decides(conditions: Conditions) -> bool:
    by_recipe = {each.condition.recipe: each for each in conditions.as_validated}
    large, offset = by_recipe.get(LARGE), by_recipe.get(OFFSET)
    if large is None or offset is None or large.passed == large.runs:
        return False
    return passes(offset) and not any(each.nonfinite for each in conditions.ran)


def _stays_finite(cell: CellFacts) -> bool:
    """No NaN and no infinity, where logits are larger than in validation too: no floating-point number has left its
    range. One may have been kept within it: clipped, or as an integer, which wraps."""
    results = [each for conditions in cell.of("inputs") for each in conditions.ran]
    tried = {each.condition.recipe for each in results if each.runs}
    infinite = any(each.nonfinite for each in results) or any(side.nonfinite_trials for side in cell.sides)
    return tried.issuperset(LARGER) and not infinite


# -- tolerances -------------------------------------------------------------------------------------------


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
    as_model = "as the model that it replaces" if case.is_kernel else "as its operators are"
    text = f"largest error anywhere: {largest:.3g} units; the rule {rule}{limited} refuses it"
    how = f"at most {largest:.3g} units; {'correct rounding costs 1' if within else 'what the model itself costs'}"
    return card(
        case,
        Kind.TOLERANCE_TOO_TIGHT,
        Shown.FOLLOWED,
        Says.TOO_TIGHT,
        cells,
        [Seen(text=text, record=cell.record), *others, *was_so(cells)],
        needs={
            "a fault as small as rounding": others and within,
            Rival.CHANCE: not case.unsteady,
        },
        out=[excluded(Rival.ALGORITHM, Seen(text=how, record=cell.record))],
        drawn=[figures.cells_figure(f"Trials within {rule}, and the error in units", cells)],
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
    return card(
        case,
        Kind.TOLERANCE_TOO_LOOSE,
        Shown.FOLLOWED,
        Says.TOO_LOOSE,
        cells,
        evidence,
        needs={"what its arithmetic costs": certain},
        drawn=[figures.cells_figure(f"Trials within {rule}, and the error in units", cells)],
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
