"""What was so all along, and what no rule explains: wrong in every version, undecided, or nothing moved at all."""

from __future__ import annotations

from harness.worker import protocol
from reports import model
from reports.attribute import figures, thresholds
from reports.attribute.cards import Shown, card, excluded, launches_command
from reports.attribute.cases import CaseFacts
from reports.attribute.causes import Cause, Kind, Rival
from reports.attribute.cells import INDEPENDENT, CellFacts
from reports.attribute.evidence import became, lengths_seen, listed, number, recipes_seen, was_so
from reports.attribute.experiments import Conditions, LengthTrials
from reports.attribute.times import CALLED
from reports.attribute.words import Says
from reports.compare.correctness import FAILED
from reports.compare.factors import DIFFERS, SAME, UNKNOWN, operators_seen
from reports.compare.rows import memory_moved
from reports.model import Seen
from reports.text import change_text


def stops_everywhere(case: CaseFacts) -> Cause | None:
    """It does not end as it should on either side."""
    told = [*case.own_errors, *case.unbuilt]
    cells = [cell for cell in case.cells if cell.stops_everywhere and cell not in told]
    if not cells or case.alone or any(cell.always_wrong for cell in case.cells):
        return None
    stopped = cells[0].sides[1]
    return card(
        case,
        Kind.WRONG_EVERYWHERE,
        Shown.TOGETHER,
        Says.STOPS_EVERYWHERE,
        cells,
        [*(cell.why for cell in cells[:4]), *map(lengths_seen, _sized(cells)[:2])],
        group=("stopped", case.kernel, stopped.status),
        message=stopped.message or "it fails in both",
    )


def _sized(cells: list[CellFacts]) -> list[LengthTrials]:
    return [each for cell in cells for each in cell.lengths[-1:] if each.right or each.wrong]


def wrong_everywhere(case: CaseFacts) -> Cause | None:
    """The baseline is wrong in the same way: the upgrade did not do it. That is shown; that the algorithm is what is
    wrong, and no fault that the experiments did not think of, is all that is left, and never proven."""
    cells = [cell for cell in case.cells if cell.always_wrong]
    if not cells:
        return None
    same = [cell for cell in cells if cell.bits.state == SAME or case.alone]
    first, within, right = _wrong_as_the_first_call(case), _within_range(case), _right_elsewhere(case, cells)
    sizes = _sized(cells)
    infinite = next((cell for cell in cells if not cell.finite), None) if within is None else None
    accessed = any(case.findings(kind) for kind in ("out_of_bounds", "uninitialised"))
    evidence = was_so(cells)
    if infinite is not None:
        evidence.append(infinite.seen("NaN or infinity"))
    if right is not None:
        text = f"{right.workload} is right in both environments, so a fault that depends on the size is possible"
        evidence.append(Seen(text=text, record=right.record))
    evidence += [lengths_seen(lengths) for lengths in sizes[:2]]
    evidence += [recipes_seen(cell, [recipe.recipe for recipe in cell.sides[1].recipes]) for cell in cells[:2]]
    alike = Seen(text=cells[0].bits.seen.text, record=cells[0].record)
    also = "" if case.alone else ": the fault is not new"
    return card(
        case,
        Kind.WRONG_EVERYWHERE,
        Shown.TOGETHER,
        Says.WRONG_EVERYWHERE,
        cells,
        evidence,
        needs={
            Rival.UPGRADE: len(same) == len(cells) and not case.alone,
            Rival.CHANCE: case.steady,
            Rival.UNINITIALISED: case.memory_clean or accessed,
            "the access that a checker saw": not accessed,
            Rival.CALLS_BEFORE: first,
            Rival.RANGE: within,
            Rival.LOOP_BOUNDS: bool(sizes) and all(not lengths.right for lengths in sizes) and right is None,
        },
        out=[
            excluded(Rival.UPGRADE, alike if same else None),
            excluded(Rival.CALLS_BEFORE, first),
            excluded(Rival.RANGE, within),
        ],
        command=case.explain(cells) if not case.memory_clean and case.is_kernel else "",
        drawn=[figures.recipes_figure(cells[0]), *(figures.lengths_figure(each) for each in sizes[:1] if each.right)],
        group=("wrong", case.reference, str(right is not None)),
        where=" in the only environment of this run" if case.alone else " in both environments",
        workloads=listed(cell.workload for cell in cells),
        also=also + (f". It is right on {right.workload}" if right else ""),
    )


def _right_elsewhere(case: CaseFacts, wrong: list[CellFacts]) -> CellFacts | None:
    """Another workload of the same type on which it is right on both sides: an algorithm is then only one of the things
    that may be wrong."""
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
    """That no number on the way leaves its type's range, or comes near its end: wrong by as much where all inputs are
    smaller and the truth is as much smaller, or wrong both on smaller inputs and in a wider type. What is not finite
    anywhere excludes nothing, and neither do smaller inputs by themselves: what is divided by may shrink with them.
    Nor does a wider type by itself: a kernel may cast to a narrow one."""
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


def undecided(case: CaseFacts) -> Cause | None:
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
    why = "only one environment was measured" if case.alone else _open_question(case, cell)
    return card(
        case,
        Kind.UNDECIDED,
        Shown.NOT,
        Says.UNDECIDED,
        cells,
        [cell.why, cell.inputs.seen, cell.bits.seen, *([case.code.seen] if case.is_kernel else []), *case.unsteady[:2]],
        command=case.explain(cells) if case.is_kernel else f"{case.command(cells)} --fresh",
        drawn=[figures.cells_figure("Trials within tolerance", cells)],
        group=(_outcome(cell), why),
        outcome=_outcome(cell),
        why=why,
    )


def _outcome(cell: CellFacts) -> str:
    status = cell.sides[1].status.replace("_", " ")
    if cell.row.alone:
        return "is wrong" if status == "wrong" else status
    if cell.verdict == model.BROKEN:
        return f"ended as {status}"
    return became(cell) if cell.verdict_moved else "is " + cell.verdict.replace("_", " ")


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


def nothing_moved(case: CaseFacts) -> Cause | None:
    """Of a kernel whose outputs are right on both sides. Names what did move, and harmed nothing."""
    cells = list(case.cells)
    if not case.is_kernel or case.alone or any(cell.verdict != model.PASS for cell in cells):
        return None
    # Of what gives other bits from run to run, equal bits in two environments are luck.
    same = [] if case.unsteady else [cell for cell in cells if cell.bits.state == SAME]
    known = case.unsteady or all(cell.bits.state != UNKNOWN for cell in cells)
    unsure = [(cell, timed) for cell in cells for timed in cell.row.timed if timed.verdict == model.UNDECIDED]
    whole = len(same) == len(cells)
    bits = "its bits differ within rounding"
    if whole:
        trials = number(sum(cell.row.correctness.bits.identical for cell in same), "trial")
        bits = f"gives the same bits in all {trials} that were compared"
    elif case.unsteady:
        bits = "is not bit-repeatable: its bits differ from run to run on the same inputs, each time within tolerance"
    harmless = _harmless(case, cells)
    also, about = _also(cells, harmless)
    sure = whole and not unsure and not about
    return card(
        case,
        Kind.NOTHING_MOVED,
        Shown.FOLLOWED if sure else Shown.TOGETHER,
        Says.NOTHING_MOVED,
        cells,
        [
            *case.unsteady[:3],
            *([case.order_of_sums] if case.order_of_sums else []),
            *([] if case.unsteady else [cell.seen(cell.bits.seen.text, cell.bits.seen.record) for cell in cells[:3]]),
            *harmless,
            cells[0].inputs.seen,
            *(cell.seen(latency.why, latency.this.record) for cell, latency in unsure[:3]),
        ],
        needs={"outputs that were not recorded": known},
        command=launches_command(case.evidence.run, case.kernel, case.device, [latency for _, latency in unsure]),
        group=("nothing", str(bool(unsure)), "same bits" if whole else bits, harmless[0].text if harmless else ""),
        bits=bits,
        also=also,
    )


def _also(cells: list[CellFacts], harmless: list[Seen]) -> tuple[str, bool]:
    """Return what is said of other changes, and whether a time changed by about what counts."""
    timed = [(cell, latency) for cell in cells for latency in cell.row.timed]
    about = [f"{cell.workload} {change_text(latency)}" for cell, latency in timed if latency.verdict == model.ABOUT]
    unsure = [cell.workload for cell, latency in timed if latency.verdict == model.UNDECIDED]
    also = f" No harm came of this: {harmless[0].text}." if harmless else ""
    if any(latency.verdict in CALLED for _, latency in timed):
        also += " Its time changed, which has a card of its own."
    if any(memory_moved(cell.row) for cell in cells):
        also += " The memory of its calls changed, which has a card of its own."
    if about:
        also += f" Its time changed by about the smallest effect that counts: {listed(about)}."
    if unsure:
        also += f" It is undecided whether its time changed on {listed(unsure)}."
    return also, bool(about)


def _harmless(case: CaseFacts, cells: list[CellFacts]) -> list[Seen]:
    cost_moved = any(each.verdict in CALLED for cell in cells for each in cell.row.timed)
    cost_moved |= any(memory_moved(cell.row) for cell in cells)
    found = []
    if case.code.state == DIFFERS and not cost_moved:
        found.append(Seen(text="its machine code differs", record=case.code.seen.record))
    references = [(cell, each) for cell in cells for each in cell.references if each.bits.state == DIFFERS]
    drifted = {each.name: cell for cell, each in reversed(references)}
    found += [operators_seen(e.base, e.this, case.versions) for _, e in references if e.operators_moved]
    wrong = {each.name for _, each in references if protocol.WRONG in (each.base.status, each.this.status)}
    names = list(dict.fromkeys(each.name for _, each in references))
    for group, text in (
        ([name for name in names if name not in wrong], "changed within rounding"),
        ([name for name in names if name in wrong], "changed, and is wrong in an environment"),
    ):
        if group:
            found.append(Seen(text=f"{listed(group)} {text}", record=drifted[names[0]].record))
    return found
