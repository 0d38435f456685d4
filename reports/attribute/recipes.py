"""Rules for faults that some inputs show and others hide: large logits, tensors that are the same one three times, and
inputs that lie or come otherwise. Pure.
"""

from __future__ import annotations

import math

from harness.schema.experiment_records import Condition, ConditionResult
from harness.worker import protocol
from reports.attribute import figures
from reports.attribute.cases import Case
from reports.attribute.cells import Cell
from reports.attribute.making import excluded, make, number, recipe_seen, ruled, steady_rivals, was_so
from reports.attribute.model import (
    DECISIVE,
    MASKED_BY_INPUTS,
    RANGE_OVERFLOW,
    STRONG,
    SUGGESTIVE,
    Cause,
    Figure,
    Ruled,
)
from reports.attribute.observed import Conditions
from reports.compare.factors import SAME
from reports.model import Seen

PLAIN_RECIPE, SHARED, LARGE = "independent", "shared_qkv", "large_logits"
SCALED = tuple(protocol.SCALED_RECIPES)
OFFSET, FLAT = "offset_logits", "flat_logits"
BEYOND = ("steep_logits", OFFSET)  # larger still; of the experiment on inputs alone


def _fails(cell: Cell, recipe: str) -> bool | None:
    rates = [cell.passing(recipe, side) for side in (0, 1)]
    known = [rate for rate in rates if rate is not None]
    return any(rate.passed < rate.trials for rate in known) if known else None


def range_overflow(case: Case) -> Cause | None:
    """Right on ordinary inputs, wrong where the logits are large. Shared tensors have large logits too. That is a fault
    of the inputs only where it shows with no call before it: see `Cell.first_right`."""
    cells = [
        cell
        for cell in case.cells
        if _fails(cell, LARGE)
        and _fails(cell, PLAIN_RECIPE) is False
        and (all(cell.wrong) or cell.row.alone)
        and not cell.first_right(LARGE)
        and not _size_is_harmless(cell)
    ]
    tried = [
        (cell, conditions)
        for cell in case.cells
        for conditions in cell.masks
        if cell not in cells
        and not _size_is_harmless(cell)
        and _fails(cell, PLAIN_RECIPE) is False
        and not any(cell.first_right(recipe) for recipe in (LARGE, *BEYOND))
        and (_only_large(conditions) or (_overflows(conditions) and not cell.verdict_moved))
    ]
    if not cells and not tried:
        return None
    every = list(dict.fromkeys([*cells, *(cell for cell, _ in tried)]))
    infinite = any(result.nonfinite_trials for cell in every for result in cell.sides)
    finite = all(_stays_finite(cell) for cell in every)
    evidence = [recipe_seen(cell, [PLAIN_RECIPE, SHARED, LARGE]) for cell in cells[:4]]
    evidence += [Seen(text=f"{cell.workload}: {masks_text(c)}", record=c.path) for cell, c in tried[:2]]
    overflowed = next((c for _, c in tried if _overflows(c)), None)
    if overflowed is not None:
        runs = number(sum(each.nonfinite for each in _beyond(overflowed)), "run")
        evidence.append(Seen(text=f"NaN or infinity in {runs} where logits are larger still", record=overflowed.path))
    if infinite:
        trials = sum(side.nonfinite_trials for cell in every for side in cell.sides[1:])
        evidence.append(Seen(text=f"NaN or infinity in {number(trials, 'trial')}", record=every[0].record))
    if finite:
        evidence.append(Seen(text="finite where logits are larger still; not excluded: a limit that the kernel sets"))
    at_once = _wrong_at_once(every)
    certain = (infinite or overflowed) and at_once and not case.unsteady
    return make(
        case,
        RANGE_OVERFLOW,
        SUGGESTIVE if finite else DECISIVE if certain else STRONG,
        f"{case.subject} fails where logits are large, and nowhere else: what it computes leaves the range or the "
        "precision of its arithmetic there.",
        every,
        [*evidence, *was_so(every)],
        ruled=[
            Ruled(rival="the algorithm as a whole", how="ordinary inputs pass", record=every[0].record),
            excluded("what ran before", at_once),
            *steady_rivals(case),
        ],
        figures=[figures.recipes_figure(every[0]), _masks_figure(every[0])],
    )


def _wrong_at_once(cells: list[Cell]) -> Seen | None:
    """That each cell is wrong on such inputs where nothing was called before."""
    found = []
    for cell in cells:
        told = [h for h in cell.histories if h.recipe in (LARGE, *BEYOND) and not h.first_right]
        if not told:
            return None
        found.append(told[0])
    return Seen(text="such inputs are wrong as the first call of a process, too", record=found[0].path)


def out_of_range(case: Case) -> Cause | None:
    """Wrong, and right where every input is smaller by a power of two, which rounding takes along exactly: so only a
    number that leaves its type's range can tell the two, or one that an index or a branch is made from, which does not
    give NaN or infinity. That holds where the truth scales with the inputs; else, as where a softmax grows flatter and
    hides what is wrong with it, where the wrong outputs are not finite."""
    found = [
        (cell, conditions, small)
        for cell in case.cells
        for conditions in cell.masks
        if not cell.first_right(PLAIN_RECIPE) and (small := _smaller_is_right(cell, conditions)) is not None
    ]
    if not found or case.unsteady:
        return None
    cells = list(dict.fromkeys(cell for cell, _, _ in found))
    same = all(small.scales for _, _, small in found)
    infinite = all(any(each.nonfinite for each in _full(conditions)) for _, conditions, _ in found)
    first = all(cell.first_right(PLAIN_RECIPE) is False for cell in cells)
    return make(
        case,
        RANGE_OVERFLOW,
        DECISIVE if same and infinite and first and case.memory_clean else STRONG,
        f"{case.subject} is wrong at the inputs' size, and right on smaller ones: a number that it computes leaves the "
        "range of its type.",
        cells,
        [
            *(Seen(text=f"{cell.workload}: {masks_text(c)}", record=c.path) for cell, c, _ in found[:2]),
            Seen(
                text="the truth on the smaller inputs is that on the full ones, times a power of two",
                record=found[0][1].path,
            )
            if same
            else Seen(text="NaN or infinity at full size, and none on the smaller inputs", record=found[0][1].path),
            *was_so(cells),
        ],
        ruled=[
            Ruled(rival="the algorithm, and rounding", how="a power of two changes neither", record=found[0][1].path)
            if same
            else None,
            *steady_rivals(case),
        ],
        figures=[_masks_figure(cells[0])],
    )


def _smaller_is_right(cell: Cell, conditions: Conditions) -> ConditionResult | None:
    """Judged by units of rounding at either size, whatever rule decides: its tolerance does not shrink with inputs."""
    limit = cell.limit("rounding") or math.inf
    full = _full(conditions)
    smaller = [each for each in conditions.ran if each.condition.recipe in (*SCALED, FLAT)]
    if not full or not (full[0].nonfinite or (full[0].max_units or 0.0) > limit):
        return None
    told = [each for each in smaller if each.runs and each.passed == each.runs]
    return next((each for each in told if each.scales or full[0].nonfinite), None)


def _full(conditions: Conditions) -> list[ConditionResult]:
    """On ordinary inputs, as they lie in validation."""
    tested = [each for each in conditions.ran if each.condition == as_tested(each)]
    return [each for each in tested if each.condition.recipe == PLAIN_RECIPE]


def _only_large(conditions: Conditions) -> bool:
    large = [each for each in conditions.ran if each.condition.recipe == LARGE]
    rest = [each for each in conditions.ran if each.condition.recipe not in (LARGE, SHARED, *SCALED)]
    failed = any(each.passed < each.runs for each in large)
    return failed and bool(rest) and all(each.passed == each.runs for each in rest)


def _size_is_harmless(cell: Cell) -> bool:
    """Wrong on large logits, and not for their size: right where all of them are larger still, by the same amount, and
    finite wherever it was tried. A number that leaves its range is not finite somewhere, and arithmetic, or a limit,
    that large logits are too large for fails on those too."""
    return bool(cell.masks) and all(_pattern_decides(conditions) for conditions in cell.masks)


def _pattern_decides(conditions: Conditions) -> bool:
    by_recipe = {each.condition.recipe: each for each in conditions.ran if each.condition == as_tested(each)}
    large, offset = by_recipe.get(LARGE), by_recipe.get(OFFSET)
    if large is None or offset is None or large.passed == large.runs:
        return False
    return offset.runs > 0 and offset.passed == offset.runs and not any(each.nonfinite for each in conditions.ran)


def _stays_finite(cell: Cell) -> bool:
    """No NaN and no infinity, where logits are larger than in validation too: no floating-point number has left its
    range. One may have been kept within it: clipped, or as an integer, which wraps."""
    results = [each for conditions in cell.masks for each in conditions.ran]
    tried = {each.condition.recipe for each in results if each.runs}
    infinite = any(each.nonfinite for each in results) or any(side.nonfinite_trials for side in cell.sides)
    return tried.issuperset(BEYOND) and not infinite


def as_tested(result: ConditionResult) -> Condition:
    return Condition(label=result.condition.label, recipe=result.condition.recipe)


def _beyond(conditions: Conditions) -> list[ConditionResult]:
    return [each for each in conditions.ran if each.condition.recipe in BEYOND]


def _overflows(conditions: Conditions) -> bool:
    """NaN or infinity where logits are larger than `large_logits` makes them, and nothing wrong on ordinary inputs. A
    finite error does not count: so far out, faithful arithmetic in half runs out of digits too."""
    rest = [each for each in conditions.ran if each.condition.recipe not in (LARGE, SHARED, *BEYOND, *SCALED)]
    overflowed = any(each.nonfinite for each in _beyond(conditions))
    return overflowed and bool(rest) and all(each.passed == each.runs for each in rest)


def masks_text(conditions: Conditions) -> str:
    told = ", ".join(f"{each.condition.label} {each.passed}/{each.runs}" for each in conditions.ran)
    return f"runs within tolerance: {told}"


def _masks_figure(cell: Cell) -> Figure | None:
    for conditions in cell.masks:
        return figures.conditions_figure(f"{cell.workload}: other inputs", conditions.ran, conditions.path)
    return None


def _masking(conditions: Conditions) -> bool:
    """As it is tested, the kernel passes; in another layout, or with tensors that are not the same one three times, it
    does not. Large logits are a matter of range, an offset one of bounds, another stream one of the launch."""
    passing = [each for each in conditions.ran if each.runs and each.passed == each.runs]
    failing = [each for each in conditions.ran if each.passed < each.runs]
    layouts = [
        each
        for each in failing
        if each.condition.recipe != LARGE and each.condition.layout in ("misaligned", "strided")
    ]
    plain = [each for each in passing if each.condition.as_laid_out]
    other_layout = any(each.condition.recipe == plain_.condition.recipe for each in layouts for plain_ in plain)
    shared = any(each.condition.recipe == SHARED for each in plain)
    independent = any(
        each.condition.recipe == PLAIN_RECIPE and each.condition.layout == "contiguous" for each in failing
    )
    return other_layout or (shared and independent)


def masked_by_inputs(case: Case) -> Cause | None:
    cells = [
        cell
        for cell in case.cells
        if _fails(cell, SHARED) is False
        and _fails(cell, PLAIN_RECIPE)
        and (all(cell.wrong) or cell.row.alone)
        and not cell.first_right(PLAIN_RECIPE)
    ]
    hidden = [
        cell
        for cell in case.cells
        if cell not in cells
        and _fails(cell, PLAIN_RECIPE) is False
        and _fails(cell, LARGE)
        and (all(cell.wrong) or cell.row.alone)
        and not cell.first_right(LARGE)
        and (_size_is_harmless(cell) or _stays_finite(cell))
    ]
    known = (*cells, *hidden)
    tried = [(cell, c) for cell in case.cells for c in cell.masks if cell not in known and _masking(c)]
    if not case.is_kernel or not (known or tried) or case.unsteady:
        return None
    every = list(dict.fromkeys([*known, *(cell for cell, _ in tried)]))
    evidence = [recipe_seen(cell, [SHARED, PLAIN_RECIPE, LARGE]) for cell in known[:4]]
    shown = [*((cell, c) for cell in hidden for c in cell.masks), *tried]
    evidence += [Seen(text=f"{cell.workload}: {masks_text(c)}", record=c.path) for cell, c in shown[:2]]
    which = (
        "one tensor given three times passes, three independent ones do not"
        if cells
        else "ordinary ones pass, large logits do not, and not for their size: larger ones, close to each other, pass"
        if any(map(_size_is_harmless, hidden))
        else "ordinary ones pass, large logits do not, and its outputs stay finite however large they are"
        if hidden
        else "it passes as it is tested, and fails on inputs that lie or come otherwise"
    )
    firm = not hidden and all(cell.bits.state == SAME or cell.row.alone for cell in every)
    asked = [cell for cell in every if _fails(cell, PLAIN_RECIPE)]
    firm = firm and all(cell.first_right(PLAIN_RECIPE) is False for cell in asked)
    return make(
        case,
        MASKED_BY_INPUTS,
        DECISIVE if firm and (case.steady or case.memory_clean) else STRONG,
        f"{case.kernel} is wrong, and some test inputs hide it: {which}.",
        every,
        [*evidence, *was_so(every)],
        ruled=[
            ruled("the upgrade", every[0].bits) if not case.alone else None,
            *steady_rivals(case),
        ],
        figures=[figures.recipes_figure(every[0]) if known else None, _masks_figure(every[0])],
    )
