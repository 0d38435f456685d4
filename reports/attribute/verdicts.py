"""What was so all along, and what no rule explains: wrong in every version, undecided, or nothing moved at all."""

from __future__ import annotations

from harness.worker import protocol
from reports import model
from reports.attribute import thresholds
from reports.attribute.cases import CaseFacts
from reports.attribute.causes import Rival
from reports.attribute.cells import INDEPENDENT, CellFacts
from reports.attribute.experiments import Conditions
from reports.attribute.finding import Finding, Shown
from reports.attribute.times import launches_command
from reports.compare.correctness import FAILED
from reports.compare.factors import DIFFERS, SAME, UNKNOWN
from reports.model import Seen


def stops_everywhere(case: CaseFacts) -> Finding | None:
    """It does not end as it should on either side."""
    told = [*case.own_errors, *case.unbuilt]
    cells = [cell for cell in case.cells if cell.stops_everywhere and cell not in told]
    if not cells or any(cell.always_wrong for cell in case.cells):
        return None
    message = cells[0].sides[1].message or "it fails in both"
    words = {"message": message, "right": ""}
    return Finding(cells=cells, shown=Shown.TOGETHER, lengths=case.lengths_of(cells), words=words)


def wrong_everywhere(case: CaseFacts) -> Finding | None:
    """The baseline is wrong in the same way: the upgrade did not do it. That is shown; that the algorithm is what is
    wrong, and no fault that the experiments did not think of, is all that is left, and never proven."""
    cells = [cell for cell in case.cells if cell.always_wrong]
    if not cells:
        return None
    same = [cell for cell in cells if cell.bits.state == SAME or case.alone]
    first, within, right = _wrong_as_the_first_call(case), _within_range(case), _right_elsewhere(case, cells)
    lengths = case.lengths_of(cells)
    accessed = any(case.findings(kind) for kind in ("out_of_bounds", "uninitialised"))
    seen = None
    if right is not None:
        text = f"{right.workload} is right in both environments, so a fault that depends on the size is possible"
        seen = Seen(text=text, record=right.record)
    return Finding(
        cells=cells,
        shown=Shown.TOGETHER,
        needs={
            Rival.UPGRADE: len(same) == len(cells) and not case.alone,
            Rival.CHANCE: case.steady,
            Rival.UNINITIALISED: case.memory_clean or accessed,
            "the access that a checker saw": not accessed,
            Rival.CALLS_BEFORE: first,
            Rival.RANGE: within,
            Rival.LOOP_BOUNDS: bool(lengths) and all(not each.right for each in lengths) and right is None,
        },
        out={
            Rival.UPGRADE: cells[0].bits.seen if same else None,
            Rival.CALLS_BEFORE: first,
            Rival.RANGE: within,
        },
        seen=[seen],
        lengths=lengths,
        words={"message": "", "right": right.workload if right is not None else ""},
    )


def _right_elsewhere(case: CaseFacts, wrong: list[CellFacts]) -> CellFacts | None:
    """Return another workload of the same type on which it is right on both sides: an algorithm is then only one of the
    things that may be wrong."""
    kinds = {info.dtype for cell in wrong if (info := case.evidence.workload(cell.workload)) is not None}
    for cell in case.cells:
        info = case.evidence.workload(cell.workload)
        if cell.verdict in model.RIGHT and info is not None and info.dtype in kinds:
            return cell
    return None


def _wrong_as_the_first_call(case: CaseFacts) -> Seen | None:
    orders = [order for cell in case.cells for order in cell.call_orders]
    wrong = [order for order in orders if not order.first_right]
    if not wrong or any(order.remembers for order in orders):
        return None
    return Seen(text="it is wrong as the first call of a process, too", record=wrong[0].path)


def _within_range(case: CaseFacts) -> Seen | None:
    """Return that no number on the way leaves its type's range, or comes near its end: wrong by as much where all
    inputs are smaller and the truth is as much smaller, or wrong both on smaller inputs and in a wider type. What is
    not finite anywhere excludes nothing, and neither do smaller inputs by themselves: what is divided by may shrink
    with them. Nor does a wider type by itself: a kernel may cast to a narrow one."""
    if not all(cell.finite for cell in case.cells):
        return None
    for cell in case.cells:
        for conditions in cell.of("inputs"):
            if _wrong_by_as_much(conditions):
                return Seen(text="it is wrong by as much on smaller inputs", record=conditions.path)
        small = [each for conditions in cell.of("inputs") for each in conditions.on(*protocol.SCALED_RECIPES)]
        for conditions in cell.of("wider"):
            if small and conditions.upcast and not any(each.passed for each in (*small, *conditions.upcast)):
                text = "it is wrong on smaller inputs, and on the same numbers in float64, too"
                return Seen(text=text, record=conditions.path)
    return None


def _wrong_by_as_much(conditions: Conditions) -> bool:
    full = [each.max_units for each in conditions.on(INDEPENDENT) if each.max_units]
    small = conditions.on(*protocol.SCALED_RECIPES)
    if not full or not small or not all(each.scales and not each.passed and each.max_units for each in small):
        return False
    return all(abs((each.max_units or 0.0) - full[0]) <= thresholds.AS_MUCH * full[0] for each in small)


# -- what no rule explains --------------------------------------------------------------------------------


def undecided(case: CaseFacts) -> Finding | None:
    """What moved, failed or wavers, for which the records leave more than one explanation. Other causes take its
    cells: see `precedence`."""
    if case.alone:
        cells = [cell for cell in case.cells if cell.sides[1].status in (*FAILED, "wrong")]
    else:
        known = (model.PASS, model.UNSUPPORTED, model.NEWLY_SUPPORTED, model.NO_LONGER_SUPPORTED)
        cells = [cell for cell in case.cells if cell.verdict not in known]
    cells = [cell for cell in cells if not cell.stops_everywhere]
    if not cells:
        return None
    cell = cells[0]
    return Finding(
        cells=cells,
        shown=Shown.NOT,
        seen=[cell.inputs.seen, *case.unsteady[:2]],
        code=True,
        words={
            "verdict": cell.verdict,
            "status": cell.sides[1].status,
            "moved": cell.verdict_moved,
            "why": "only one environment was measured" if case.alone else _open_question(case, cell),
        },
    )


def _open_question(case: CaseFacts, cell: CellFacts) -> str:
    if cell.verdict == model.BROKEN:
        return "no checker has looked at what it did before it ended"
    if case.unsteady and case.order_of_sums is None:
        return (
            "its bits differ from call to call, as with a race or uninitialised memory, and filling the memory did not "
            "tell these apart"
        )
    if cell.yardstick.state == DIFFERS:
        return f"the truth or the tolerance is not the same in both environments ({cell.yardstick.seen.text})"
    if UNKNOWN in (cell.inputs.state, cell.yardstick.state, cell.bits.state):
        return "inputs, truth and outputs are not all recorded in both environments"
    if cell.bits.state == SAME and cell.verdict_moved:
        return (
            "outputs, inputs, truth and tolerance are identical, but the verdicts differ: these records contradict "
            "each other"
        )
    if cell.verdict == model.UNDECIDED:
        return cell.row.correctness.why
    if case.is_kernel and case.code.state == SAME:
        return (
            "its outputs changed and its machine code did not; what runs around it and uninitialised memory have not "
            "been told apart yet"
        )
    return "the experiments that would tell its code, its memory and its environment apart were not made, or disagree"


def nothing_moved(case: CaseFacts) -> Finding | None:
    """Of a kernel whose outputs are right on both sides."""
    cells = list(case.cells)
    if not case.is_kernel or case.alone or any(cell.verdict != model.PASS for cell in cells):
        return None
    # Of what gives other bits from run to run, equal bits in two environments are luck.
    whole = not case.unsteady and all(cell.bits.state == SAME for cell in cells)
    timed = [(cell, latency) for cell in cells for latency in cell.row.timed]
    unsure = [(cell, latency) for cell, latency in timed if latency.verdict == model.UNDECIDED]
    open_times = unsure or any(latency.verdict == model.ABOUT for _, latency in timed)
    known = case.unsteady or all(cell.bits.state != UNKNOWN for cell in cells)
    return Finding(
        cells=cells,
        shown=Shown.FOLLOWED if whole and not open_times else Shown.TOGETHER,
        needs={"outputs that were not recorded": known},
        seen=[
            *case.unsteady[:3],
            case.order_of_sums,
            cells[0].inputs.seen,
            *(cell.seen(latency.why, latency.this.record) for cell, latency in unsure[:3]),
        ],
        code=True,
        command=launches_command(case.evidence.run, case.kernel, case.device, [latency for _, latency in unsure]),
        words={"whole": whole, "unsteady": bool(case.unsteady), "is_open": bool(unsure)},
        details={"unsure": [cell.workload for cell, _ in unsure]},
    )
