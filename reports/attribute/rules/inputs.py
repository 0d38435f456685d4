"""Rules for faults that some inputs show and others hide: large logits, numbers that leave the range of a type, tensors
that are the same one three times, lengths, and inputs that lie or come otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from harness.schema.experiment_records import ConditionResult
from harness.worker import protocol
from reports.attribute import causes, figures
from reports.attribute.causes import DECISIVE, STRONG, SUGGESTIVE, Cause, RuledOut
from reports.attribute.evidence import excluded, listed, number, rates_seen, recipes_seen, steady_rivals, was_so
from reports.attribute.facts.cases import CaseFacts
from reports.attribute.facts.cells import INDEPENDENT, LARGE, SHARED, CellFacts
from reports.attribute.facts.experiments import Conditions, fails, passes
from reports.attribute.wording import make
from reports.compare.factors import SAME
from reports.model import Seen

SCALED = tuple(protocol.SCALED_RECIPES)
FLAT, OFFSET = "flat_logits", "offset_logits"
LARGER = ("steep_logits", OFFSET)  # than `large_logits`; of the experiment on inputs alone


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
    infinite = any(result.nonfinite_trials for cell in every for result in cell.sides)
    finite = all(_stays_finite(cell) for cell in every)
    evidence = [recipes_seen(cell, [INDEPENDENT, SHARED, LARGE]) for cell in cells[:4]]
    evidence += [rates_seen(cell, conditions) for cell, conditions in tried[:2]]
    overflowed = next((conditions for _, conditions in tried if _overflows(conditions)), None)
    if overflowed is not None:
        runs = number(sum(each.nonfinite for each in overflowed.on(*LARGER)), "run")
        evidence.append(Seen(text=f"NaN or infinity in {runs} where logits are larger still", record=overflowed.path))
    if infinite:
        trials = sum(cell.sides[1].nonfinite_trials for cell in every)
        evidence.append(Seen(text=f"NaN or infinity in {number(trials, 'trial')}", record=every[0].record))
    if finite:
        evidence.append(Seen(text="finite where logits are larger still, so no floating-point number has overflowed"))
    at_once = _wrong_at_once(every)
    certain = (infinite or overflowed) and at_once and not case.unsteady
    return make(
        case,
        causes.RANGE_OVERFLOW,
        SUGGESTIVE if finite else DECISIVE if certain else STRONG,
        "limited_range" if finite else "range_overflow",
        every,
        [*evidence, *was_so(every)],
        ruled_out=[
            RuledOut(rival="the algorithm", how="ordinary inputs pass", record=every[0].record),
            excluded("what ran before", at_once),
            *steady_rivals(case),
        ],
        figures=[figures.recipes_figure(every[0]), figures.inputs_figure(every[0])],
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


Found = list[tuple[CellFacts, Conditions]]


def _always(case: CaseFacts, experiment: str, shows: Callable[[CellFacts, Conditions], bool]) -> Found:
    """Experiments that show something of cells which are not merely wrong after other calls."""
    if case.unsteady:
        return []
    return [
        (cell, conditions)
        for cell, conditions in case.of(experiment)
        if not cell.first_right(INDEPENDENT) and shows(cell, conditions)
    ]


def _out_of_range(
    case: CaseFacts,
    found: Found,
    sentence: str,
    certain: bool,
    shown: list[Seen],
    rival: str,
    how: str,
    *,
    fix: str = "",
    **names: Any,
) -> Cause:
    cells = list(dict.fromkeys(cell for cell, _ in found))
    first, conditions = found[0]
    title = f"The same numbers in other types, {first.workload}"
    drawn = figures.conditions_figure(title, conditions.ran, conditions.path)
    return make(
        case,
        causes.RANGE_OVERFLOW,
        DECISIVE if certain else STRONG,
        sentence,
        cells,
        [*(rates_seen(*each) for each in found[:2]), *shown, *was_so(cells)],
        ruled_out=[RuledOut(rival=rival, how=how, record=conditions.path) if how else None, *steady_rivals(case)],
        figures=[figures.inputs_figure(first) if sentence == "right_when_smaller" else drawn],
        fix=fix,
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
    scales = all(small.scales for each in found if (small := _smaller_is_right(*each)) is not None)
    infinite = all(any(each.nonfinite for each in _full(conditions)) for _, conditions in found)
    first = all(cell.first_right(INDEPENDENT) is False for cell, _ in found)
    text = "the truth on the smaller inputs is that on the full ones, times a power of two"
    text = text if scales else "NaN or infinity at full size, and none on the smaller inputs"
    return _out_of_range(
        case,
        found,
        "right_when_smaller",
        bool(scales and infinite and first and case.memory_clean),
        [Seen(text=text, record=found[0][1].path)],
        "the algorithm, and rounding",
        "a power of two changes neither" if scales else "",
        fix=WIDER_SUMS if _not_by_logits(found) else "",
        logits=_not_by_logits(found),
        smaller=listed(small.condition.label for each in found if (small := _smaller_is_right(*each)) is not None),
    )


WIDER_SUMS = "compute products and sums of the inputs in a wider type; the exponential of the logits is not what fails"


def _not_by_logits(found: Found) -> str:
    """Said where the size of the logits was varied alone, and is not what decides: larger ones are right, or smaller
    ones as wrong."""
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
    return _out_of_range(case, found, "right_when_upcast", False, [], "the algorithm", how) if found else None


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


def _to_others(tried: Found) -> str:
    """The conditions that were seen to fail, where tests as they are pass."""
    wrong = [each.condition.label for _, conditions in tried for each in conditions.ran if fails(each)]
    return f"test on inputs that show it, too: {listed(wrong)}"


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
    which = (
        "it passes if Q, K and V are one tensor, and fails if they are independent"
        if cells
        else "it passes on ordinary inputs and fails on large logits, but not because of their size: larger ones that "
        "lie close together pass"
        if any(_right_when_only_larger(cell) for cell in hidden)
        else "it passes on ordinary inputs and fails on large logits, and its outputs stay finite however large these "
        "are"
        if hidden
        else "it passes as it is tested, and fails on inputs of other values or another layout in memory"
    )
    firm = not hidden and all(cell.bits.state == SAME or cell.row.alone for cell in every)
    firm = firm and all(cell.first_right(INDEPENDENT) is False for cell in every if cell.fails_on(INDEPENDENT))
    return make(
        case,
        causes.MASKED_BY_INPUTS,
        DECISIVE if firm and (case.steady or case.memory_clean) else STRONG,
        "masked",
        every,
        [*evidence, *was_so(every)],
        ruled_out=[None if case.alone else excluded("the upgrade", every[0].bits), *steady_rivals(case)],
        figures=[figures.recipes_figure(every[0]) if known else None, figures.inputs_figure(every[0])],
        which=which,
        fix=TO_INDEPENDENT if cells else TO_LARGE if hidden else _to_others(tried),
    )


# -- logits that are larger still --------------------------------------------------------------------------


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
