"""Rules for kernels that are made of PyTorch's operators: what moves these is not their own code, unless they choose
for themselves. Which lines of a Python file ran shows what it chose, and its profile what it drew.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.schema.records import ValidationRecord
from harness.worker import protocol
from reports.attribute import figures, thresholds
from reports.attribute.cards import Shown, card, excluded
from reports.attribute.cases import CaseFacts
from reports.attribute.causes import Cause, Kind, Rival
from reports.attribute.cells import CellFacts
from reports.attribute.changes import runs_text
from reports.attribute.evidence import became, listed, number
from reports.attribute.messages import backends_named
from reports.attribute.profiles import LinesRun, another_backend, lines_run
from reports.attribute.trials import Follows
from reports.attribute.words import Says
from reports.compare.factors import DIFFERS, SAME
from reports.model import Seen


def _other_bits(cell: CellFacts) -> bool:
    return bool(cell.inputs.state == SAME and cell.bits.state == DIFFERS)


def reference_inside(case: CaseFacts) -> Cause | None:
    """The kernel is PyTorch's own operator by another name: its outputs are a reference's, bit for bit."""
    if not case.is_kernel or case.alone or case.one_torch:
        return None
    found = [
        (cell, before, here)
        for cell in case.moved
        if _other_bits(cell)
        if (before := cell.twins(0) - {protocol.MODEL}) and (here := cell.twins(1) - {protocol.MODEL})
    ]
    if not found:
        return None
    cell, before, here = found[0]
    common, one, two = map(_names, (before & here, before, here))
    swapped = not common or cell.reference(common[0]).operators_moved
    by_itself = Seen(text="PyTorch, called by itself, gives the same bits", record=cell.record)
    return card(
        case,
        Kind.DEFAULT_BACKEND_MOVED if swapped else Kind.REFERENCE_MOVED,
        Shown.FOLLOWED,
        Says.SAME_REFERENCE_INSIDE if common else Says.OTHER_REFERENCE_INSIDE,
        [cell for cell, _, _ in found],
        [
            cell.why,
            Seen(text=f"every output equals that of {listed(sorted(before))}", record=cell.sides[0].record),
            Seen(text=f"every output equals that of {listed(sorted(here))}", record=cell.sides[1].record),
            cell.bits.seen,
        ],
        out=[excluded(Rival.CODE, by_itself)],
        drawn=[figures.crossing_figure(cell, list(dict.fromkeys((*one, *two)))), figures.recipes_figure(cell)],
        what=became(cell),
        both=listed(common),
        before=listed(one),
        here=listed(two),
    )


def _names(references: set[str]) -> list[str]:
    """Without the default, which is one of the others, where there is another."""
    return [name for name in sorted(references) if name != "default"] or sorted(references)


def backend_named(case: CaseFacts) -> Cause | None:
    """It ends in one environment only, and the exception names an attention backend of PyTorch's: there that one ran.
    Who chose it, PyTorch or the kernel, the words do not say."""
    found = [
        (cell, side, backends_named(side))
        for cell in case.cells
        for side, other in zip(cell.sides, reversed(cell.sides), strict=True)
        if backends_named(side) and other.status in protocol.RAN
    ]
    if not case.is_kernel or case.alone or case.one_torch or not found:
        return None
    cell, side, names = found[0]
    return card(
        case,
        Kind.DEFAULT_BACKEND_MOVED,
        Shown.HINT,
        Says.BACKEND_NAMED,
        [cell for cell, _, _ in found],
        [cell.seen_in(side.environment, side.message, side.record)],
        backends=listed(names),
        environment=side.environment,
    )


def moved_with_model(case: CaseFacts) -> Cause | None:
    """A problem's kernel and the model that it replaces moved together, agree, and are far from the truth: both were
    given something else, such as parameters that each draws for itself."""
    found = []
    for cell in case.moved:
        agreed = [side.agreement.get(protocol.MODEL) for side in cell.sides]
        together = all(rate is not None and rate.passed == rate.trials for rate in agreed)
        if together and _other_bits(cell) and (far := _far(cell)) is not None:
            found.append((cell, far))
    if not case.is_kernel or case.alone or not found:
        return None
    cell, far = found[0]
    inputs = far >= thresholds.FAR_FROM_TRUTH
    return card(
        case,
        Kind.INPUTS_MOVED if inputs else Kind.REFERENCE_MOVED,
        Shown.TOGETHER,
        Says.OTHER_INPUTS_WITH_MODEL if inputs else Says.MOVED_WITH_MODEL,
        [cell for cell, _ in found],
        [
            cell.why,
            Seen(text=f"its error is {far:.2g} of a row's largest value", record=cell.record),
            cell.inputs.seen,
            cell.bits.seen,
        ],
        drawn=[figures.crossing_figure(cell, [protocol.MODEL]), figures.recipes_figure(cell)],
    )


def _far(cell: CellFacts) -> float | None:
    """The largest error on the side that is wrong, as a share of the row's largest value."""
    side = 1 if cell.wrong[1] else 0
    record, units = cell.validations[side], cell.units[side]
    costs = [cost for recipe in record.recipes for cost in recipe.rounding_cost] if record else []
    return units * max(costs) if units is not None and costs else None


def model_draws(case: CaseFacts) -> Cause | None:
    """The model that a kernel is held against gives other bits when it is called again on the same tensors, and there
    is no truth: each call computes from something of its own, such as numbers that it draws."""
    cells = [cell for cell in case.cells if any(cell.wrong) and any(map(_model_wavers, cell.validations))]
    if not case.is_kernel or not cells:
        return None
    cell = cells[0]
    again = sum(cell.sides[1].repeats_differ for cell in cells)
    return card(
        case,
        Kind.INPUTS_MOVED,
        Shown.HINT,
        Says.MODEL_DRAWS,
        cells,
        [
            *(each.why for each in cells[:3]),
            Seen(text="the model's second run on the same tensors gave other bits in every trial", record=cell.record),
            Seen(text=f"so did the kernel's in {number(again, 'trial')}", record=cell.record),
            cell.inputs.seen,
        ],
        drawn=[figures.recipes_figure(cell)],
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


def _moved_lines(case: CaseFacts) -> Iterator[LinesRun]:
    """Of cells whose own outputs moved, where only PyTorch's version differs."""
    if not case.is_kernel or case.alone or case.one_torch or case.variables:
        return
    for cell in case.moved:
        lines = lines_run(case, cell)
        if lines is not None and _other_bits(cell):
            yield lines


def other_lines_run(case: CaseFacts) -> Cause | None:
    """The file is one text, and its own lines choose: which of them run is not the same in both environments."""
    found = [each for each in _moved_lines(case) if any(each.alone)]
    if not found or case.unsteady:
        return None
    cells = [each.cell for each in found]
    return card(
        case,
        Kind.KERNEL_CODE_MOVED,
        Shown.FOLLOWED,
        Says.OTHER_LINES_RUN,
        cells,
        [*(cell.why for cell in cells[:3]), *found[0].seen],
        needs={"the file chooses by a value that one of PyTorch's operators returned, not by the version": None},
        drawn=[figures.lines_figure(found[0])],
        what=became(cells[0]),
    )


def chosen_by_version(case: CaseFacts) -> Cause | None:
    """The result follows the version that the file is told, whichever PyTorch runs it."""
    if case.told is None or case.told_follows is not Follows.FACTOR or not case.is_kernel:
        return None
    cell, trials = case.told
    names = dict(zip(case.environments, case.versions, strict=True))
    runs = runs_text(trials, "{home}, told that it is {whose}", "are told the same version", names)
    lines = lines_run(case, cell)
    asked = lines.asking() if lines is not None else None
    held = Seen(text="the PyTorch that ran was held, both ways", record=trials.path)
    return card(
        case,
        Kind.KERNEL_CODE_MOVED,
        Shown.FOLLOWED,
        Says.CHOSEN_BY_VERSION,
        [cell, *(other for other in case.moved if other.verdict == cell.verdict)],
        [
            cell.why,
            cell.seen(runs, trials.path),
            *([asked] if asked else []),
            *(lines.seen if lines is not None else []),
        ],
        needs={"two failures of one outcome": trials.ends_alike, Rival.CHANCE: not case.unsteady},
        out=[excluded(Rival.PYTORCH, held)],
        drawn=[figures.exchange_figure(trials)],
        what=became(cell),
        fix="correct what its file does for that version",
    )


def draws_otherwise(case: CaseFacts) -> Cause | None:
    """A kernel and the model that it replaces are constructed under one seed. Where one leaves the generators elsewhere
    than the other does, what is drawn for it is not what is drawn for the model."""
    found = [
        each
        for each in _moved_lines(case)
        if {each.base.draws_as_model, each.this.draws_as_model} == {True, False}
        and each.cell.wrong == (not each.base.draws_as_model, not each.this.draws_as_model)
    ]
    if not found:
        return None
    cells, lines = [each.cell for each in found], found[0]
    right, wrong = case.versions if cells[0].wrong[1] else reversed(case.versions)
    text = (
        f"in {right} constructing it leaves PyTorch's generators where constructing the model leaves them, "
        f"in {wrong} it does not, under the same seed"
    )
    return card(
        case,
        Kind.INPUTS_MOVED,
        Shown.TOGETHER,
        Says.DRAWS_OTHERWISE,
        cells,
        [*(cell.why for cell in cells[:3]), Seen(text=text, record=lines.path)],
        needs={Rival.CHANCE: case.steady},
        drawn=[figures.draws_figure(lines), figures.lines_figure(lines) if any(lines.alone) else None],
        what=became(cells[0]),
        where=wrong,
    )


NOT_RECORDED = Seen(
    text="a choice that the file makes itself, or random numbers that it draws; the lines that ran were not recorded"
)


def made_of_operators(case: CaseFacts) -> Cause | None:
    """The same sources compute otherwise: of what a Python file is made, an operator moved. Of an extension that is
    said only where it runs another of attention's backends."""
    info = case.evidence.kernel(case.kernel) if case.is_kernel else None
    if info is None or case.alone or not info.sources or case.unsteady or case.variables:
        return None
    binds = all(build is not None and build.binds_itself for build in case.builds)
    if case.code.state == DIFFERS if case.is_python else not binds:
        return None  # code that the file compiles by itself, or no calls of PyTorch
    cells = [cell for cell in case.moved if _other_bits(cell)]
    ended = [] if cells else [cell for cell in case.cells if _ends_in_one(cell)]
    cells = cells or ended
    swapped = next((found for cell in cells if (found := another_backend(case, cell)) is not None), None)
    if not cells or (swapped is None and (ended or not case.is_python)):
        return None
    lines = lines_run(case, cells[0])
    held = case.told is not None and case.told_follows is Follows.PLACE and case.told[1].ends_alike
    rival = NOT_RECORDED if lines is None else lines.asking(told=held)
    known = swapped is not None or rival is None
    stayed = [Seen(text="its result stayed where its file was told the other's PyTorch version")] if held else []
    one_text = f"{listed(info.sources)}: the same text, and no machine code of its own"
    inside = Says.OPERATOR_INSIDE_MOVED if known else Says.OPERATOR_OR_CHOICE_MOVED
    return card(
        case,
        Kind.DEFAULT_BACKEND_MOVED if swapped else Kind.REFERENCE_MOVED,
        Shown.TOGETHER,
        Says.ANOTHER_BACKEND_INSIDE if swapped else inside,
        cells,
        [
            *([Seen(text=f"by its profiles: {swapped.text}", record=swapped.record)] if swapped else []),
            *(cell.why for cell in cells[:3]),
            *([] if ended else [cells[0].bits.seen]),
            *stayed,
        ],
        needs={} if known or rival is None else {rival.text: None},
        out=[excluded(Rival.CODE, one_text if case.is_python and known else None)],
        drawn=[figures.recipes_figure(cells[0])],
        file="a Python file that is" if case.is_python else "an extension whose sources are",
    )


def _ends_in_one(cell: CellFacts) -> bool:
    return sorted(side.status in (protocol.CRASHED, protocol.UNSUPPORTED) for side in cell.sides) == [False, True]
