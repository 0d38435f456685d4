"""Rules for faults that some inputs show and others hide, and for tolerances that do not fit: large logits, numbers
that leave the range of a type, tensors that are the same one three times, and inputs that lie or come otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from harness.schema.experiment_records import ConditionResult
from harness.schema.records import Agreement, RecipeResult, TargetResult
from harness.worker import protocol
from reports.attribute import thresholds
from reports.attribute.cases import CaseFacts
from reports.attribute.causes import Rival
from reports.attribute.cells import INDEPENDENT, LARGE, SHARED, CellFacts
from reports.attribute.experiments import Conditions, fails, passes
from reports.attribute.finding import Finding, Shown, first_of
from reports.attribute.wording import listed
from reports.compare.factors import SAME
from reports.model import Seen

SCALED = tuple(protocol.SCALED_RECIPES)
FLAT, OFFSET = "flat_logits", "offset_logits"
LARGER = ("steep_logits", OFFSET)  # than `large_logits`; of the experiment on inputs only
Found = list[tuple[CellFacts, Conditions]]


def _always_wrong_on(cell: CellFacts, recipe: str) -> bool:
    """Return whether it is, in both environments, and not only after other calls: see `CellFacts.first_right`."""
    return bool(cell.fails_on(recipe) and (cell.always_wrong or cell.row.alone) and not cell.first_right(recipe))


def range_overflow(case: CaseFacts) -> Finding | None:
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
    every = first_of(cells, tried)
    infinite = any(side.nonfinite_trials for cell in every for side in cell.sides)
    overflowed = any(_overflows(conditions) for _, conditions in tried)
    finite, first = all(map(_stays_finite, every)), _wrong_at_once(every)
    return Finding(
        cells=every,
        shown=Shown.HINT if finite else Shown.FOLLOWED,
        needs={
            "too few digits, and not the range": infinite or overflowed,
            Rival.CALLS_BEFORE: first,
            Rival.CHANCE: not case.unsteady,
        },
        out={Rival.ALGORITHM: "ordinary inputs pass", Rival.CALLS_BEFORE: first},
        runs=tried or case.of("inputs")[:1],
        words={"how": "finite" if finite else "large"},
    )


def _wrong_at_once(cells: list[CellFacts]) -> Seen | None:
    """Return that each cell is wrong on such inputs where nothing was called before."""
    orders = [[o for o in cell.call_orders if o.recipe in (LARGE, *LARGER) and not o.first_right] for cell in cells]
    if not all(orders):
        return None
    return Seen(text="such inputs are wrong as the first call of a process, too", record=orders[0][0].path)


def _only_large(conditions: Conditions) -> bool:
    rest = conditions.beside(LARGE, SHARED, *SCALED)
    return any(map(fails, conditions.on(LARGE))) and bool(rest) and not any(map(fails, rest))


def _overflows(conditions: Conditions) -> bool:
    """Return whether it gives NaN or infinity where logits are larger than `large_logits` makes them, and nothing wrong
    on ordinary inputs. A finite error does not count: so far out, faithful arithmetic in half runs out of digits."""
    rest = conditions.beside(LARGE, SHARED, *LARGER, *SCALED)
    overflowed = any(each.nonfinite for each in conditions.on(*LARGER))
    return overflowed and bool(rest) and not any(map(fails, rest))


# -- numbers that leave the range of their type -----------------------------------------------------------


def _always(case: CaseFacts, experiment: str, shows: Callable[[CellFacts, Conditions], object]) -> Found:
    """Return experiments that show something of cells which are not merely wrong after other calls."""
    if case.unsteady:
        return []
    return [
        (cell, conditions)
        for cell, conditions in case.of(experiment)
        if not cell.first_right(INDEPENDENT) and shows(cell, conditions)
    ]


def right_when_smaller(case: CaseFacts) -> Finding | None:
    """Wrong, and right where every input is smaller by a power of two, which rounding takes along exactly: so only a
    number that leaves its type's range can tell the two, or one that an index or a branch is made from, which does not
    give NaN or infinity. That holds where the truth scales with the inputs; else, as where a softmax grows flatter and
    hides what is wrong with it, where the wrong outputs are not finite."""
    found = _always(case, "inputs", _smaller_is_right)
    if not found:
        return None
    smaller = [small for each in found if (small := _smaller_is_right(*each)) is not None]
    scales = all(small.scales for small in smaller)
    infinite = all(any(each.nonfinite for each in _full(conditions)) for _, conditions in found)
    first = all(cell.first_right(INDEPENDENT) is False for cell, _ in found)
    how = "the truth on the smaller inputs is that on the full ones, times a power of two"
    return Finding(
        cells=first_of([], found),
        shown=Shown.FOLLOWED,
        needs={"memory, earlier calls, and what is finite": scales and infinite and first and case.memory_clean},
        out={Rival.ALGORITHM: how if scales else "NaN or infinity at full size, and none on the smaller inputs"},
        runs=found,
        words={"how": "smaller", "smaller": listed(small.condition.label for small in smaller)},
    )


def _smaller_is_right(cell: CellFacts, conditions: Conditions) -> ConditionResult | None:
    """Return a smaller size at which it is right, by units of rounding whatever rule decides: the tolerance of another
    rule does not shrink with inputs."""
    limit = cell.limit("rounding") or math.inf
    full = _full(conditions)
    if not full or not (full[0].nonfinite or (full[0].max_units or 0.0) > limit):
        return None
    right = filter(passes, conditions.on(*SCALED, FLAT))
    return next((each for each in right if each.scales or full[0].nonfinite), None)


def _full(conditions: Conditions) -> list[ConditionResult]:
    """Return the results on ordinary inputs, as they lie in validation."""
    return [each for each in conditions.as_validated if each.condition.recipe == INDEPENDENT]


def right_when_upcast(case: CaseFacts) -> Finding | None:
    """NaN or infinity, and none where the same code is given the same numbers in a wider type, and right there: what
    it computes is right, and a number on the way has no place in its type, whatever the size of the inputs."""
    found = _always(case, "wider", lambda _, c: c.right_when_upcast and any(each.nonfinite for each in c.as_validated))
    if not found:
        return None
    return Finding(
        cells=first_of([], found),
        shown=Shown.FOLLOWED,
        needs={"memory, earlier calls, and what is finite": None},
        out={Rival.ALGORITHM: "the same code is right on the same numbers in float64"},
        runs=found,
        words={"how": "upcast"},
    )


# -- what test inputs hide --------------------------------------------------------------------------------


def _masking(conditions: Conditions) -> bool:
    """Return whether the kernel passes as it is tested, and not in another layout, or with tensors that are not the
    same one three times. Large logits are a matter of range, an offset one of bounds, another stream one of the
    launch."""
    plain = {each.condition.recipe for each in conditions.as_laid_out if passes(each)}
    failing = [each.condition for each in conditions.ran if fails(each)]
    layouts = {each.recipe for each in failing if each.recipe != LARGE and each.layout in ("misaligned", "strided")}
    independent = any(each.recipe == INDEPENDENT and each.layout == "contiguous" for each in failing)
    return bool(layouts & plain) or (SHARED in plain and independent)


TO_LARGE = "test with large logits, too (Q and K several times as large): ordinary inputs do not show this fault"
TO_INDEPENDENT = "test with independent random Q, K and V, which do not hide the fault"


def masked_by_inputs(case: CaseFacts) -> Finding | None:
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
    if not (known or tried) or case.unsteady:
        return None
    every = first_of(known, tried)
    wrong = [each.condition.label for _, conditions in tried for each in conditions.ran if fails(each)]
    which, fix = "layout", f"test on inputs that show it, too: {listed(wrong)}"
    if cells:
        which, fix = "shared", TO_INDEPENDENT
    elif hidden:
        which, fix = "close" if any(map(_right_when_only_larger, hidden)) else "finite", TO_LARGE
    return Finding(
        cells=every,
        shown=Shown.FOLLOWED,
        needs={
            "a limit of its range": not hidden,
            Rival.UPGRADE: all(cell.bits.state == SAME or cell.row.alone for cell in every),
            Rival.CALLS_BEFORE: all(c.first_right(INDEPENDENT) is False for c in every if c.fails_on(INDEPENDENT)),
            Rival.CHANCE: case.steady or case.memory_clean,
        },
        out={Rival.UPGRADE: every[0].bits.seen if every[0].bits.state == SAME and not case.alone else None},
        runs=[*((cell, c) for cell in hidden for c in cell.of("inputs")), *tried],
        words={"which": which},
        fix=fix,
    )


def _right_when_only_larger(cell: CellFacts) -> bool:
    """Return whether it is wrong on large logits, and not for their size: right where all of them are larger still, by
    the same amount, and finite wherever it was tried. A number that leaves its range is not finite somewhere, and
    arithmetic, or a limit, that large logits are too large for fails on those too."""
    return bool(cell.of("inputs")) and all(map(_pattern_decides, cell.of("inputs")))


def _pattern_decides(conditions: Conditions) -> bool:
    by_recipe = {each.condition.recipe: each for each in conditions.as_validated}
    large, offset = by_recipe.get(LARGE), by_recipe.get(OFFSET)
    if large is None or offset is None or large.passed == large.runs:
        return False
    return passes(offset) and not any(each.nonfinite for each in conditions.ran)


def _stays_finite(cell: CellFacts) -> bool:
    """Return whether there is no NaN and no infinity, where logits are larger than in validation too: no floating-point
    number has left its range. One may have been kept within it: clipped, or as an integer, which wraps."""
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
    """Yield every target's results against the truth, of the first of these sides that was validated."""
    record = next((record for side in sides if (record := cell.validations[side]) is not None), None)
    for recipe in record.recipes if record else []:
        for target in recipe.targets:
            for agreement in target.against:
                if agreement.against == protocol.TRUTH:
                    yield recipe, target, agreement


def tolerance_too_tight(case: CaseFacts) -> Finding | None:
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
    others, largest = _also_fail(cells[0]), _largest(cells)
    within = largest <= thresholds.FAITHFUL_UNITS
    how = f"at most {largest:.3g} units; {'correct rounding costs 1' if within else 'what the model itself costs'}"
    return Finding(
        cells=cells,
        shown=Shown.FOLLOWED,
        needs={"a fault as small as rounding": others and within, Rival.CHANCE: not case.unsteady},
        out={Rival.ALGORITHM: Seen(text=how, record=cells[0].record)},
        seen=others,
        words=_rule_words(case, cells) | {"within": within},
    )


def _rule_words(case: CaseFacts, cells: list[CellFacts]) -> dict[str, object]:
    return {"rule": _decides(cells[0]), "dtypes": case.dtypes(cells) or "this workload"}


def _faithful_units(cell: CellFacts, side: int) -> float:
    """Return how many units of error are no fault there. Of a problem, whose arithmetic is not known, it is what its
    own `Model` costs, or twice that, where the rule refuses that one too."""
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
    """Return how far off a model may be: as far as it is where the kernel is right on the same numbers in float64."""
    upcast = cell.of("wider")
    return math.inf if upcast and all(each.right_when_upcast for each in upcast) else thresholds.LOOSEST_UNITS


def _also_fail(cell: CellFacts) -> list[Seen]:
    """Return references that are faithful too, and fail the same rule against the truth."""
    found, rule, most = [], _decides(cell), _loosest(cell)
    for recipe, target, agreement in _against_truth(cell, 1, 0):
        passed, units = agreement.passed.get(rule), agreement.max_units
        if target.target in (protocol.KERNEL, cell.target) or passed is None or units is None:
            continue
        if passed < recipe.trials and units <= (most if target.target == protocol.MODEL else thresholds.FAITHFUL_UNITS):
            text = f"{target.target}, at {units:.3g} units, fails it too: {passed}/{recipe.trials} {recipe.recipe}"
            found.append(Seen(text=text, record=cell.record))
    return found[:2]


def tolerance_too_loose(case: CaseFacts) -> Finding | None:
    """Passes the rule that decides, and is many units from the truth."""
    cells = [cell for cell in case.cells if _passes_too_far_off(cell)]
    if not cells:
        return None
    limit, largest, best = cells[0].limit("rounding") or math.inf, _largest(cells), _best_reference(cells[0])
    beyond = largest > thresholds.BEYOND_LIMIT * limit
    text = f"the best reference is at {best or 0.0:.3g} units on the same inputs"
    return Finding(
        cells=cells,
        shown=Shown.FOLLOWED,
        needs={"what its arithmetic costs": best is not None and best * thresholds.NET < largest and beyond},
        seen=[None if best is None else Seen(text=text, record=cells[0].record)],
        words=_rule_words(case, cells),
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
