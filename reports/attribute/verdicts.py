"""Rules for what was so all along, and, last, for what no other rule explains: the records do not tell, or nothing
moved at all. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from harness.worker import protocol
from reports import model
from reports.attribute import figures, thresholds
from reports.attribute.cases import Case
from reports.attribute.cells import Cell
from reports.attribute.making import became, excluded, listed, make, number, recipe_seen, ruled, steady_rivals, was_so
from reports.attribute.model import (
    DECISIVE,
    NOTHING_MOVED,
    STRONG,
    SUGGESTIVE,
    UNDECIDED,
    WRONG_EVERYWHERE,
    Cause,
    Ruled,
)
from reports.attribute.observed import Conditions
from reports.attribute.ranges import lengths_of
from reports.attribute.timed import CALLED
from reports.compare.correctness import FAILED
from reports.compare.factors import DIFFERS, SAME, UNKNOWN, operators_seen
from reports.model import CorrectnessSide, Seen


def _always_wrong(case: Case) -> list[Cell]:
    """Wrong on both sides: what moved on top of that is another rule's."""
    return [cell for cell in case.cells if all(cell.wrong)]


def wrong_everywhere(case: Case) -> Cause | None:
    """The baseline is wrong in the same way: the upgrade did not do it. That is shown; that the algorithm is what is
    wrong, and no fault that the experiments did not think of, is all that is left, and never decisive."""
    cells = _always_wrong(case)
    same = [cell for cell in cells if cell.bits.state == SAME or case.alone]
    stopped = [] if case.alone else [cell for cell in case.cells if _stops_everywhere(cell)]
    if not cells and not stopped:
        return None
    if stopped and not cells:
        return make(
            case,
            WRONG_EVERYWHERE,
            STRONG,
            f"{case.subject} does not run in the baseline either: {stopped[0].sides[1].message or 'it fails in both'}",
            stopped,
            [Seen(text=f"{cell.workload}: {cell.row.correctness.why}", record=cell.record) for cell in stopped[:4]],
            gist=("stopped", case.kernel, stopped[0].sides[1].status),
        )
    both = len(same) == len(cells) and bool(case.steady)
    first, within = _wrong_as_the_first_call(case), _within_range(case)
    right = _right_elsewhere(case, cells)
    sizes = [each for cell in cells for each in lengths_of(cell)[-1:] if each.right or each.wrong]
    at_every_length = bool(sizes) and all(not lengths.right or lengths.tile is not None for lengths in sizes)
    certain = both and case.memory_clean and first and within and right is None and at_every_length
    infinite = _left_its_range(cells) if within is None else None
    untold = [
        "memory that is read without being written" if not case.memory_clean else "",
        "what an earlier call left" if not first else "",
        "a number that leaves its type's range" if not within and not infinite else "",
        "a count or an end that some lengths meet" if not at_every_length else "",
    ]
    grade = STRONG if certain and not case.alone else SUGGESTIVE
    evidence = was_so(cells)
    evidence += [seen for seen in (infinite, right) if seen is not None]
    evidence += [lengths.seen for lengths in sizes[:2]]
    if any(untold):
        evidence.append(Seen(text=f"not excluded: {', '.join(filter(None, untold))}"))
    evidence += [recipe_seen(cell, [r.recipe for r in cell.sides[1].recipes]) for cell in cells[:2]]
    where = "the only environment of this run" if case.alone else "the baseline and here alike"
    return make(
        case,
        WRONG_EVERYWHERE,
        grade,
        f"{case.subject} is wrong against the float64 truth in {where}: this fault is not new"
        + (", and another workload does not show it." if right is not None else "."),
        cells,
        evidence,
        ruled=[
            Ruled(rival="the upgrade", how=cells[0].bits.seen.text, record=cells[0].record) if same else None,
            excluded("earlier calls", first),
            excluded("the range of its type", within),
            *steady_rivals(case),
        ],
        command=case.explain(cells) if not case.memory_clean and case.is_kernel else "",
        figures=[figures.recipes_figure(cells[0]), *(lengths.figure for lengths in sizes[:1] if lengths.right)],
    )


def _right_elsewhere(case: Case, wrong: list[Cell]) -> Seen | None:
    """That it is right on both sides on another workload of the same type: an
    algorithm is then only one of the things that may be wrong."""
    kinds = {info.dtype for cell in wrong if (info := case.evidence.workload(cell.workload)) is not None}
    for cell in case.cells:
        info = case.evidence.workload(cell.workload)
        if cell.verdict in model.RIGHT and info is not None and info.dtype in kinds:
            text = f"{cell.workload} is right in both; not excluded: a count or a buffer that does not hold the other"
            return Seen(text=text, record=cell.record)
    return None


def _wrong_as_the_first_call(case: Case) -> Seen | None:
    told = [history for cell in case.cells for history in cell.histories if not history.first_right]
    if not told or any(history.remembers for cell in case.cells for history in cell.histories):
        return None
    return Seen(text="it is wrong as the first call of a process, too", record=told[0].path)


def _within_range(case: Case) -> Seen | None:
    """That no number on the way leaves its type's range, or comes near its end: wrong by as much where all inputs are
    smaller and the truth is as much smaller, or wrong both on smaller inputs and in a wider type. What is not finite
    anywhere excludes nothing, and neither do smaller inputs alone: what is divided by may shrink with them. Nor does a
    wider type alone: a kernel may cast to a narrow one by itself."""
    if not all(_finite(cell) for cell in case.cells):
        return None
    for cell in case.cells:
        for conditions in cell.masks:
            if _wrong_by_as_much(conditions):
                return Seen(text="it is wrong by as much on smaller inputs", record=conditions.path)
        small = [r for c in cell.masks for r in c.ran if r.condition.recipe in protocol.SCALED_RECIPES]
        for conditions in cell.wider:
            wider = [each for each in conditions.ran if each.condition.dtype]
            if small and wider and not any(each.passed for each in (*small, *wider)):
                text = "it is wrong on smaller inputs, and on the same numbers in float64, too"
                return Seen(text=text, record=conditions.path)
    return None


def _wrong_by_as_much(conditions: Conditions) -> bool:
    full = [each for each in conditions.ran if each.condition.recipe == protocol.RECIPES[0] and each.max_units]
    small = [each for each in conditions.ran if each.condition.recipe in protocol.SCALED_RECIPES]
    if not full or not small or not all(each.scales and not each.passed and each.max_units for each in small):
        return False
    units = full[0].max_units or 0.0
    return all(abs((each.max_units or 0.0) - units) <= thresholds.AS_MUCH * units for each in small)


def _finite(cell: Cell) -> bool:
    """On ordinary inputs and smaller ones; what was not tried on them, in validation."""
    asked = (protocol.RECIPES[0], *protocol.SCALED_RECIPES)
    results = [
        each
        for conditions in cell.conditions
        for each in conditions.ran
        if each.condition.recipe in asked and not each.condition.seq_len and each.condition.gpu == "current"
    ]
    if any(each.nonfinite for each in results):
        return False
    return bool(results) or not any(side.nonfinite_trials for side in cell.sides)


def _left_its_range(cells: list[Cell]) -> Seen | None:
    """NaN or infinity for which nothing excludes that a number has no place in its type."""
    for cell in cells:
        if not _finite(cell):
            text = f"{cell.workload}: NaN or infinity; not excluded: a number on the way that leaves its type's range"
            return Seen(text=text, record=cell.record)
    return None


def _stops_everywhere(cell: Cell) -> bool:
    base, this = cell.sides
    return base.status in FAILED and this.status in FAILED and "broken" not in (base.status, this.status)


def undecided(case: Case) -> Cause | None:
    """What moved, failed or wavers, for which the records leave more than one explanation. Other causes take its
    cells: see `stories`."""
    if case.alone:
        cells = [cell for cell in case.cells if cell.sides[1].status in (*FAILED, "wrong")]
        why = "only one environment was measured"
    else:
        settled_ = (model.PASS, model.UNSUPPORTED, model.NEWLY_SUPPORTED, model.NO_LONGER_SUPPORTED)
        cells = [cell for cell in case.cells if cell.verdict not in settled_]
        why = ""
    cells = [cell for cell in cells if not _stops_everywhere(cell)]
    if not cells:
        return None
    cell = cells[0]
    why = why or _open_question(case, cell)
    return make(
        case,
        UNDECIDED,
        UNDECIDED,
        f"The records do not tell why {case.subject} {_did(cell)}: {why}.",
        cells,
        [
            Seen(text=f"{cell.workload}: {cell.row.correctness.why}", record=cell.record),
            cell.inputs.seen,
            cell.bits.seen,
            *([case.code.seen] if case.is_kernel else []),
            *case.unsteady[:2],
        ],
        ruled=[
            ruled("the inputs", cell.inputs),
            ruled("the kernel's code and build", case.code) if case.is_kernel else None,
        ],
        command=case.explain(cells) if case.is_kernel else f"{case.command(cells)} --fresh",
        figures=[figures.cells_figure("Trials within tolerance", cells)],
        gist=(_did(cell), why),
    )


def _did(cell: Cell) -> str:
    if cell.row.alone:
        return "is wrong" if cell.sides[1].status == "wrong" else cell.sides[1].status.replace("_", " ")
    words = {
        **dict.fromkeys((model.REGRESSED, model.FIXED, *model.EXACTNESS), became(cell)),
        model.BROKEN: f"ended as {cell.sides[1].status.replace('_', ' ')}",
    }
    return words.get(cell.verdict, "is " + cell.verdict.replace("_", " "))


def _open_question(case: Case, cell: Cell) -> str:
    if cell.verdict == model.BROKEN:
        return "no checker has looked at what it did before it ended"
    if case.unsteady and case.order_of_sums is None:
        return (
            "its bits differ from call to call, as with a race and with uninitialised memory, and no filling of the "
            "memory told these apart"
        )
    if cell.yardstick.state == DIFFERS:
        return f"the yardstick is not the same in both environments ({cell.yardstick.seen.text})"
    if UNKNOWN in (cell.inputs.state, cell.yardstick.state, cell.bits.state):
        return "inputs, yardstick and outputs are not all recorded on both sides"
    if cell.bits.state == SAME and cell.verdict_moved:
        return (
            "outputs, inputs and yardstick are identical, and the verdicts differ: these records contradict each other"
        )
    if cell.verdict == model.UNDECIDED:
        return cell.row.correctness.why
    if case.is_kernel and case.code.state == SAME:
        return (
            "its outputs moved and its machine code did not; what runs around it and memory that it reads without "
            "writing are not told apart yet"
        )
    return "the experiments that would tell its code, its memory and its environment apart were not made, or disagree"


def nothing_moved(case: Case) -> Cause | None:
    """Of a kernel whose outputs are right on both sides. Names what did move, and harmed nothing."""
    cells = [cell for cell in case.cells if cell.verdict == model.PASS]
    if not case.is_kernel or case.alone or len(cells) != len(case.cells) or not cells:
        return None
    # Of what gives other bits from run to run, equal bits in two environments are luck.
    same = [] if case.unsteady else [cell for cell in cells if cell.bits.state == SAME]
    known = cells if case.unsteady else [cell for cell in cells if cell.bits.state != UNKNOWN]
    untold = [(cell, timed) for cell in cells for timed in cell.row.timed if timed.verdict == model.UNDECIDED]
    about = [cell for cell in cells for timed in cell.row.timed if timed.verdict == model.ABOUT]
    grade = STRONG if len(known) == len(cells) else SUGGESTIVE
    if len(same) == len(cells) and not untold and not about:
        grade = DECISIVE
    trials = sum(cell.row.correctness.bits.identical for cell in same)
    bits = (
        f"gives the same bits in all {number(trials, 'trial')} that were compared"
        if len(same) == len(cells)
        else "is not bit-repeatable: its runs give other bits on the same inputs, each within the rule"
        if case.unsteady
        else "gives other bits within rounding"
    )
    timed_apart = any(timed.verdict in CALLED for cell in cells for timed in cell.row.timed)
    harmless = _harmless(case, cells, timed_apart)
    said = f" What did move, and harmed nothing: {harmless[0].text}." if harmless else ""
    if timed_apart:
        said += " Its time did move, which is told apart from this."
    if about:
        said += f" Its time moved on {listed(cell.workload for cell in about)}, by about what counts as a change."
    if untold:
        said += f" Whether its time moved on {listed(cell.workload for cell, _ in untold)}, the launches do not tell."
    return make(
        case,
        NOTHING_MOVED,
        grade,
        f"{case.kernel} is right in both environments, and {bits}.{said}",
        cells,
        [
            *case.unsteady[:3],
            *([case.order_of_sums] if case.order_of_sums else []),
            *(
                replace(cell.bits.seen, text=f"{cell.workload}: {cell.bits.seen.text}")
                for cell in ([] if case.unsteady else cells[:3])
            ),
            *harmless,
            cells[0].inputs.seen,
            *(Seen(text=f"{cell.workload}: {timed.why}", record=timed.this.record) for cell, timed in untold[:3]),
        ],
        ruled=[
            ruled("the kernel's code and build", case.code),
            *steady_rivals(case),
        ],
        gist=(
            "nothing",
            str(bool(untold)),
            bits if len(same) < len(cells) else "same bits",
            (bool(harmless) and harmless[0].text) or "",
        ),
    )


def _sides(cell: Cell) -> Iterator[tuple[str, CorrectnessSide]]:
    for reference in cell.references:
        yield reference.name, reference.base
        yield reference.name, reference.this


def _harmless(case: Case, cells: list[Cell], timed_apart: bool) -> list[Seen]:
    found = []
    if case.code.state == DIFFERS and not timed_apart:
        found.append(Seen(text="its machine code differs", record=case.code.seen.record))
    drifted: dict[str, Cell] = {}
    for cell in cells:
        for reference in cell.references:
            if reference.bits.state == DIFFERS:
                drifted.setdefault(reference.name, cell)
                if reference.operators_moved:
                    found.append(operators_seen(reference.base, reference.this))
    if drifted:
        cell = next(iter(drifted.values()))
        wrong = {name for each in cells for name, side in _sides(each) if side.status == protocol.WRONG}
        within, beyond = [name for name in drifted if name not in wrong], [name for name in drifted if name in wrong]
        if within:
            found.append(Seen(text=f"{listed(within)} drifted within rounding", record=cell.record))
        if beyond:
            found.append(Seen(text=f"{listed(beyond)} moved, and is wrong in an environment", record=cell.record))
    return found
