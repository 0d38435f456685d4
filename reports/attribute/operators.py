"""Rules for kernels that are made of PyTorch's operators: what moves these is not their own code, unless they choose
for themselves. Which lines of a Python file ran shows what it chose, and its profile what it drew.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.schema.records import ValidationRecord
from harness.worker import protocol
from reports.attribute import thresholds
from reports.attribute.cases import CaseFacts
from reports.attribute.causes import Kind, Rival
from reports.attribute.cells import CellFacts
from reports.attribute.finding import Finding, Shown, first_of
from reports.attribute.messages import backends_named
from reports.attribute.profiles import LinesRun, another_backend, lines_run
from reports.attribute.trials import Follows
from reports.attribute.wording import listed
from reports.compare.factors import DIFFERS, SAME
from reports.model import Seen


def _other_bits(cell: CellFacts) -> bool:
    return bool(cell.inputs.state == SAME and cell.bits.state == DIFFERS)


def reference_inside(case: CaseFacts) -> Finding | None:
    """The kernel is PyTorch's own operator by another name: its outputs are a reference's, bit for bit."""
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
    return Finding(
        cells=[cell for cell, _, _ in found],
        shown=Shown.FOLLOWED,
        kind=Kind.DEFAULT_BACKEND_MOVED if swapped else Kind.REFERENCE_MOVED,
        out={Rival.CODE: "PyTorch, called by itself, gives the same bits"},
        crossed=list(dict.fromkeys((*one, *two))),
        words={"how": "inside", "both": listed(common), "before": listed(one), "here": listed(two)},
    )


def _names(references: set[str]) -> list[str]:
    """Return them without the default, which is one of the others, where there is another."""
    return [name for name in sorted(references) if name != "default"] or sorted(references)


def backend_named(case: CaseFacts) -> Finding | None:
    """It ends in one environment only, and the exception names an attention backend of PyTorch's: there that one ran.
    Who chose it, PyTorch or the kernel, the words do not say."""
    found = [
        (cell, number)
        for cell in case.cells
        for number, side in enumerate(cell.sides)
        if backends_named(side) and cell.sides[1 - number].status in protocol.RAN
    ]
    if not found:
        return None
    cell, number = found[0]
    return Finding(
        cells=first_of([], found),
        shown=Shown.HINT,
        sides=[(cell, cell.sides[number])],
        words={"how": "named", "side": number, "backends": listed(backends_named(cell.sides[number]))},
    )


def moved_with_model(case: CaseFacts) -> Finding | None:
    """A problem's kernel and the model that it replaces moved together, agree, and are far from the truth: both were
    given something else, such as parameters that each draws for itself."""
    found = []
    for cell in case.moved:
        agreed = [side.agreement.get(protocol.MODEL) for side in cell.sides]
        together = all(rate is not None and rate.passed == rate.trials for rate in agreed)
        if together and _other_bits(cell) and (far := _far(cell)) is not None:
            found.append((cell, far))
    if not found:
        return None
    inputs = found[0][1] >= thresholds.FAR_FROM_TRUTH
    return Finding(
        cells=first_of([], found),
        shown=Shown.TOGETHER,
        kind=Kind.INPUTS_MOVED if inputs else Kind.REFERENCE_MOVED,
        seen=[Seen(text=f"its error is {found[0][1]:.2g} of a row's largest value", record=found[0][0].record)],
        crossed=[protocol.MODEL],
        words={"how": "with model"},
    )


def _far(cell: CellFacts) -> float | None:
    """Return the largest error on the side that is wrong, as a share of the row's largest value."""
    side = 1 if cell.wrong[1] else 0
    record, units = cell.validations[side], cell.units[side]
    costs = [cost for recipe in record.recipes for cost in recipe.rounding_cost] if record else []
    return units * max(costs) if units is not None and costs else None


def model_draws(case: CaseFacts) -> Finding | None:
    """The model that a kernel is held against gives other bits when it is called again on the same tensors, and there
    is no truth: each call computes from something of its own, such as numbers that it draws."""
    cells = [cell for cell in case.cells if any(cell.wrong) and any(map(_model_wavers, cell.validations))]
    if not cells:
        return None
    text = "the model's second run on the same tensors gave other bits in every trial"
    seen = [Seen(text=text, record=cells[0].record), *case.unsteady]
    return Finding(cells=cells, shown=Shown.HINT, seen=seen, words={"how": "model draws"})


def _model_wavers(record: ValidationRecord | None) -> bool:
    """Return whether it does in every trial, of a problem that has no float64 truth."""
    of_model = [
        target.repeats_differ == recipe.trials > 0 and not any(recipe.truth_sha256)
        for recipe in (record.recipes if record else [])
        for target in recipe.targets
        if target.target == protocol.MODEL
    ]
    return bool(of_model) and all(of_model)


def _moved_lines(case: CaseFacts) -> Iterator[LinesRun]:
    """Yield those of cells whose own outputs moved, where only PyTorch's version differs."""
    for cell in [] if case.variables else case.moved:
        lines = lines_run(case, cell)
        if lines is not None and _other_bits(cell):
            yield lines


def other_lines_run(case: CaseFacts) -> Finding | None:
    """The file is one text, and its own lines choose: which of them run is not the same in both environments."""
    found = [each for each in _moved_lines(case) if any(each.alone)]
    if not found or case.unsteady:
        return None
    return Finding(
        cells=[each.cell for each in found],
        shown=Shown.FOLLOWED,
        needs={"the file chooses by a value that one of PyTorch's operators returned, not by the version": None},
        lines=found[0],
        words={"how": "lines"},
    )


def chosen_by_version(case: CaseFacts) -> Finding | None:
    """The result follows the version that the file is told, whichever PyTorch runs it."""
    if case.told is None or case.told_follows is not Follows.FACTOR:
        return None
    cell, trials = case.told
    lines = lines_run(case, cell)
    return Finding(
        cells=[cell, *(other for other in case.moved if other.verdict == cell.verdict)],
        shown=Shown.FOLLOWED,
        needs={"two failures of one outcome": trials.ends_alike, Rival.CHANCE: not case.unsteady},
        out={Rival.PYTORCH: "the PyTorch that ran was held, both ways"},
        seen=[lines.asking() if lines is not None else None],
        exchange=case.told,
        lines=lines,
        fix="correct what its file does for that version",
        words={"how": "told"},
    )


def draws_otherwise(case: CaseFacts) -> Finding | None:
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
    number = int(found[0].cell.wrong[1])
    text = (
        f"in {case.versions[1 - number]} constructing it leaves PyTorch's generators where constructing the model "
        f"leaves them, in {case.versions[number]} it does not, under the same seed"
    )
    return Finding(
        cells=[each.cell for each in found],
        shown=Shown.TOGETHER,
        needs={Rival.CHANCE: case.steady},
        seen=[Seen(text=text, record=found[0].path)],
        lines=found[0],
        words={"how": "draws", "side": number},
    )


NOT_RECORDED = Seen(
    text="a choice that the file makes itself, or random numbers that it draws; the lines that ran were not recorded"
)


def made_of_operators(case: CaseFacts) -> Finding | None:
    """The same sources compute otherwise: of what a Python file is made, an operator moved. Of an extension that is
    said only where it runs another of attention's backends."""
    info = case.evidence.kernel(case.kernel)
    if info is None or not info.sources or case.unsteady or case.variables:
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
    stayed = Seen(text="its result stayed where its file was told the other's PyTorch version") if held else None
    same_text = f"{listed(info.sources)}: the same text, and no machine code of its own"
    return Finding(
        cells=cells,
        shown=Shown.TOGETHER,
        kind=Kind.DEFAULT_BACKEND_MOVED if swapped else Kind.REFERENCE_MOVED,
        needs={} if known or rival is None else {rival.text: None},
        out={Rival.CODE: same_text if case.is_python and known else None},
        seen=[Seen(text=f"by its profiles: {swapped.text}", record=swapped.record) if swapped else None, stayed],
        words={"how": "made of operators", "known": known},
    )


def _ends_in_one(cell: CellFacts) -> bool:
    return sorted(side.status in (protocol.CRASHED, protocol.UNSUPPORTED) for side in cell.sides) == [False, True]
