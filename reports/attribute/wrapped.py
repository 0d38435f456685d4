"""Rules for kernels that are PyTorch's own operators by another name: what moves them is not theirs. Pure."""

from __future__ import annotations

from harness.schema.records import ValidationRecord
from harness.worker import protocol
from reports.attribute import figures, thresholds
from reports.attribute.cases import Case
from reports.attribute.cells import Cell
from reports.attribute.making import became, listed, make, number, ruled
from reports.attribute.messages import backends_named
from reports.attribute.model import (
    DECISIVE,
    DEFAULT_BACKEND_MOVED,
    INPUTS_MOVED,
    REFERENCE_MOVED,
    STRONG,
    SUGGESTIVE,
    Cause,
    Ruled,
)
from reports.compare.factors import DIFFERS, SAME
from reports.model import Seen


def reference_inside(case: Case) -> Cause | None:
    """The kernel is PyTorch's own operator by another name: its outputs are a reference's, bit for bit."""
    if not case.is_kernel or case.alone or case.one_torch:
        return None
    found = []
    for cell in case.moved:
        before, here = cell.twins(0) - {protocol.MODEL}, cell.twins(1) - {protocol.MODEL}
        if cell.inputs.state == SAME and cell.bits.state == DIFFERS and before and here:
            found.append((cell, before, here))
    if not found:
        return None
    cells = [cell for cell, _, _ in found]
    cell, before, here = found[0]
    both = sorted(before & here)
    named = [each for each in both if each != "default"] or both
    one, two = ([each for each in sorted(side) if each != "default"] or ["default"] for side in (before, here))
    if both:
        swapped = cell.reference(named[0]).operators_moved
        said = f"its outputs are those of PyTorch's own {listed(named)}, bit for bit, and these moved"
    else:
        swapped = True
        said = (
            f"its outputs are bit for bit those of PyTorch's own {listed(one)} in the baseline, of {listed(two)} here"
        )
    return make(
        case,
        DEFAULT_BACKEND_MOVED if swapped else REFERENCE_MOVED,
        DECISIVE,
        f"{case.kernel} {became(cell)} with PyTorch: {said}.",
        cells,
        [
            Seen(text=f"{cell.workload}: {cell.row.correctness.why}", record=cell.record),
            Seen(text=f"every output equals that of {listed(sorted(before))}", record=cell.sides[0].record),
            Seen(text=f"every output equals that of {listed(sorted(here))}", record=cell.sides[1].record),
            cell.bits.seen,
        ],
        ruled=[
            ruled("the inputs", cell.inputs),
            Ruled(
                rival="the kernel's own code", how="PyTorch, called by itself, gives the same bits", record=cell.record
            ),
        ],
        figures=[figures.crossing_figure(cell, list(dict.fromkeys([*one, *two]))), figures.recipes_figure(cell)],
    )


def backend_named(case: Case) -> Cause | None:
    """It ends in one environment alone, and the exception names an attention backend of PyTorch's: there that one ran.
    Who chose it, PyTorch or the kernel, the words do not tell."""
    if not case.is_kernel or case.alone or case.one_torch:
        return None
    found = [
        (cell, side, backends_named(side))
        for cell in case.cells
        for side, other in zip(cell.sides, reversed(cell.sides), strict=True)
        if backends_named(side) and other.status in protocol.RAN
    ]
    if not found:
        return None
    cell, side, names = found[0]
    return make(
        case,
        DEFAULT_BACKEND_MOVED,
        SUGGESTIVE,
        f"{case.kernel} runs into PyTorch's {listed(names)} in {side.environment}, and not in the other environment: "
        "where the choice is left to PyTorch, it fell on another backend.",
        [cell for cell, _, _ in found],
        [Seen(text=f"{cell.workload} in {side.environment}: {side.message}", record=side.record)],
        ruled=[ruled("the inputs", cell.inputs)],
    )


def computed_from_else(case: Case) -> Cause | None:
    """A problem's kernel and the model that it replaces moved together, agree, and are far from the truth: both were
    given something else, such as parameters that each draws for itself."""
    if not case.is_kernel or case.alone:
        return None
    found = []
    for cell in case.moved:
        model_ = next((each for each in cell.sides[1].agreement if each == protocol.MODEL), None)
        agreed = [side.agreement.get(protocol.MODEL) for side in cell.sides]
        if model_ is None or cell.inputs.state != SAME or cell.bits.state != DIFFERS:
            continue
        if all(rate is not None and rate.passed == rate.trials for rate in agreed) and _far(cell) is not None:
            found.append(cell)
    if not found:
        return None
    cell = found[0]
    far = _far(cell) or 0.0
    return make(
        case,
        INPUTS_MOVED if far >= thresholds.FAR_FROM_TRUTH else REFERENCE_MOVED,
        STRONG,
        f"{case.kernel} and the model that it replaces moved together and agree with each other on both sides: "
        + (
            "what both compute from is not the same in both environments, although the stored inputs are."
            if far >= thresholds.FAR_FROM_TRUTH
            else "PyTorch's operators, which both are made of, moved."
        ),
        found,
        [
            Seen(text=f"{cell.workload}: {cell.row.correctness.why}", record=cell.record),
            Seen(text=f"the error is {far:.2g} of a row's largest value", record=cell.record),
            cell.inputs.seen,
            cell.bits.seen,
        ],
        ruled=[Ruled(rival="the kernel", how="the model that it replaces moved as it did", record=cell.record)],
        figures=[figures.crossing_figure(cell, [protocol.MODEL]), figures.recipes_figure(cell)],
    )


def _far(cell: Cell) -> float | None:
    """The largest error on the side that is wrong, as a share of the row's largest value."""
    side = 1 if cell.wrong[1] else 0
    record, units = cell.validations[side], cell.units[side]
    costs = [cost for recipe in record.recipes for cost in recipe.rounding_cost] if record else []
    return units * max(costs) if units is not None and costs else None


def drawn_anew(case: Case) -> Cause | None:
    """The model that a kernel is held against gives other bits when it is called again on the same tensors, and there
    is no truth: each call computes from something of its own, such as numbers that it draws."""
    if not case.is_kernel:
        return None
    cells = [cell for cell in case.cells if any(cell.wrong) and any(map(_model_wavers, cell.validations))]
    if not cells:
        return None
    cell = cells[0]
    again = sum(cell.sides[1].repeats_differ for cell in cells)
    return make(
        case,
        INPUTS_MOVED,
        STRONG,
        f"{case.kernel} is held against a model that gives other outputs in each call on the same tensors: both "
        "compute from more than their inputs, such as numbers that a call draws, and no two calls from the same.",
        cells,
        [
            *(Seen(text=f"{each.workload}: {each.row.correctness.why}", record=each.record) for each in cells[:3]),
            Seen(text="the model's second run on the same tensors gave other bits in every trial", record=cell.record),
            Seen(text=f"so did the kernel's in {number(again, 'trial')}", record=cell.record),
            cell.inputs.seen,
        ],
        ruled=[
            ruled("the stored inputs", cell.inputs),
            Ruled(rival="the upgrade", how=cell.bits.seen.text, record=cell.record)
            if cell.bits.state == SAME
            else None,
        ],
        command=case.explain(cells),
        figures=[figures.recipes_figure(cell)],
    )


def _model_wavers(record: ValidationRecord | None) -> bool:
    """In every trial, of a problem that has no float64 truth."""
    of_model = [
        target.repeats_differ == recipe.trials > 0 and not any(recipe.truth_sha256)
        for recipe in (record.recipes if record else [])
        for target in recipe.targets
        if target.target == protocol.MODEL
    ]
    return bool(of_model) and all(of_model)
