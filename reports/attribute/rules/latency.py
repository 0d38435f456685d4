"""Rules for times that moved with an operator, with what a call costs beside its work, with the machine, or with a
kernel's own code.
"""

from __future__ import annotations

import math
import statistics

from reports import model
from reports.attribute import causes, thresholds
from reports.attribute.causes import DECISIVE, STRONG, SUGGESTIVE, Cause, RuledOut, combined
from reports.attribute.evidence import (
    differences_seen,
    excluded,
    in_words,
    listed,
    load_seen,
    machine_ruled_out,
    threads_ruled_out,
)
from reports.attribute.facts.cases import CaseFacts
from reports.attribute.facts.cells import operators_moved
from reports.attribute.facts.choices import lines_seen
from reports.attribute.facts.profiles import OperatorChange, Profiles, another_backend, own, profiles
from reports.attribute.facts.times import CALLED, TimeChange, leans
from reports.attribute.figures import profile_figure
from reports.attribute.wording import make, make_of_time
from reports.compare.factors import DIFFERS, SAME, operator_names, operators_seen
from reports.model import Latency, Seen
from reports.text import apart, brief_time, function_name

# -- the machine ------------------------------------------------------------------------------------------


def clock_or_load(change: TimeChange) -> Cause | None:
    """The clock moved with the time, or all targets moved together and the machine was not the same."""
    log_time = statistics.median(map(math.log, change.ratios))
    by_clock = change.clock_moved and bool(log_time) and -math.log(change.clock) / log_time >= thresholds.MOST
    everywhere = change.around.everywhere
    own_load = _busier_in_every_launch(change, "own", "while it called nothing, the launch's own process used")
    # Where another target of the same launches stood, others did not slow everything.
    steady = change.around.steady
    others = [] if steady else _busier_in_every_launch(change, "busy", "other processes used")
    load = load_seen(change)
    if not (by_clock or everywhere or others or own_load):
        return None
    certain = by_clock or load or others or own_load
    what = (
        "the GPU's clock moved with it"
        if by_clock
        else "other threads of its process are busy in each of its slower launches, and in none of the others"
        if own_load
        else "other processes are busy in each of its slower launches, and in none of the others"
        if others
        else "so are most other targets"
    )
    alike = f"{change.around.alike} of {change.around.total} other targets became {change.word} too"
    return make_of_time(
        change,
        causes.LATENCY_CLOCK_OR_LOAD,
        DECISIVE if by_clock and everywhere else STRONG if certain else SUGGESTIVE,
        "clock_or_load",
        [*own_load, *others, *load],
        [RuledOut(rival="one operator", how=alike) if everywhere else None],
        group=("machine", what),
        measured=bool(certain),
        what=what,
    )


def _busier_in_every_launch(change: TimeChange, kind: str, who: str) -> list[Seen]:
    """Launches of both environments take turns: what is busy in all of one's and in none of the other's, be it other
    processes or threads that a launch's own process has beside those that were called, came with it."""
    base, this = change.loads(kind)
    slower, faster = change.slower_first(base, this)
    if min(len(slower), len(faster)) < thresholds.FEWEST_LAUNCHES or min(slower) - max(faster) <= thresholds.BUSIER:
        return []
    shares = (
        f"{who} {min(base):.0%} to {max(base):.0%} of the machine in each of {len(base)} launches",
        f"{min(this):.0%} to {max(this):.0%} in each of {len(this)}",
    )
    return [Seen(text=apart(change.case.versions, *shares))]


# -- operators --------------------------------------------------------------------------------------------


def operator(change: TimeChange) -> Cause | None:
    case, cells = change.case, change.cells
    found = profiles(case, cells)
    if found is not None:
        return _from_profile(change, found)
    if case.is_kernel:
        return None
    moved = any(operators_moved(*cell.sides) for cell in cells)
    operators = cells[0].sides[1].operators
    return make_of_time(
        change,
        causes.LATENCY_OPERATOR,
        STRONG if moved or change.around.steady else SUGGESTIVE,
        "another_operator" if moved else "same_operator",
        [operators_seen(*cells[0].sides, case.versions)] if operators else [],
        [
            machine_ruled_out(change),
            None if case.is_operator else RuledOut(rival="the kernel", how="a reference's time does not depend on it"),
        ],
        group=("operator", *sorted(operator_names(operators))) if operators else (),
    )


def _from_profile(change: TimeChange, found: Profiles) -> Cause | None:
    """The profile's own change must go the way of the measured one, or it explains nothing."""
    case, cell = change.case, found.cell
    total = sum(each.delta_us for each in found.changes)
    measured = _change_us(change.latency(cell))
    if total * change.sign <= 0:
        return None
    leading: list[OperatorChange] = []
    for each in found.changes:
        if each.delta_us * change.sign > 0 and len(leading) < 3:
            leading.append(each)
        if sum(each.delta_us for each in leading) / total >= thresholds.WHOLE:
            break
    share = sum(each.delta_us for each in leading) / total
    if not leading or share < thresholds.MOST or (case.is_kernel and all(own(case, each) for each in leading)):
        return None
    agrees = measured is not None and 1 / thresholds.AGREES <= total / measured <= thresholds.AGREES
    certain = agrees and share >= thresholds.WHOLE and change.around.alike < max(1, change.around.total)
    named = [(function_name(each.name), each.word, brief_time(each.delta_us, "+")) for each in leading]
    operators = "; ".join(f"{name} {word} ({more} a call)" for name, word, more in named)
    medians = f", in the launches {_more(measured)}" if measured is not None else ""
    text = (
        f"under the profiler, whose own cost is included, a call takes {_more(total)} than in "
        f"{case.versions[0]}{medians}; the operators named make {min(share, 1):.0%} of the change under the profiler"
    )
    cause = make_of_time(
        change,
        causes.LATENCY_OPERATOR,
        DECISIVE if certain else STRONG,
        "operators_of_profile",
        [cell.seen(text, found.path), *lines_seen(case, cell)],
        [machine_ruled_out(change)],
        [profile_figure(found)],
        group=("profile", operators),
        # The same operators, only slower, may be slowed by whatever else moved.
        measured=not all(each.alike for each in leading),
        operators=operators,
    )
    swapped = another_backend(case, cell)
    if swapped is None:
        return cause
    chosen = make_of_time(
        change,
        causes.DEFAULT_BACKEND_MOVED,
        STRONG,
        "backend_chosen",
        [Seen(text=f"by its profiles: {swapped.text}", record=swapped.record)],
        group=("default", swapped.before, swapped.here),
        before=swapped.before,
        here=swapped.here,
    )
    return combined(cause, chosen)


def _more(change_us: float) -> str:
    return f"{brief_time(abs(change_us))} {'more' if change_us > 0 else 'less'}"


def _change_us(latency: Latency) -> float | None:
    one, two = latency.baseline.median_us, latency.this.median_us
    return two - one if one is not None and two is not None else None


# -- what a call costs ------------------------------------------------------------------------------------


def many_small_calls(change: TimeChange) -> Cause | None:
    """The same work cut into many more calls, each of which does less: the time is that of calling."""
    found = profiles(change.case, change.cells)
    if found is None:
        return None
    one, two = (sum(each.calls[side] for each in found.changes) for side in (0, 1))
    before, here = sum(c.before_us or 0.0 for c in found.changes), sum(c.after_us or 0.0 for c in found.changes)
    (many, longer), (few, shorter) = change.slower_first((one, before), (two, here))
    if not few or many < thresholds.MANY_CALLS * few or longer <= shorter:
        return None
    if longer / many > thresholds.SHORTER * shorter / few:
        return None
    text = f"an operator takes {apart(change.case.versions, brief_time(before / one), brief_time(here / two))}"
    how = "each call of an operator takes less time than before"
    return make_of_time(
        change,
        causes.LATENCY_LAUNCH_OVERHEAD,
        STRONG,
        "many_small_calls",
        [found.cell.seen(text, found.path), *lines_seen(change.case, found.cell)],
        [RuledOut(rival="one operator", how=how, record=found.path), machine_ruled_out(change)],
        [profile_figure(found)],
        measured=True,
        before=f"{one:.0f}",
        here=f"{two:.0f}",
        graph=_in_replays(change),
    )


def _in_replays(change: TimeChange) -> str:
    """Whether a CUDA graph, whose replays start nothing one by one, would take the time of starting away."""
    hot = [(cell.row.hot, cell.row.latency) for cell in change.cells if cell.row.hot is not None]
    if not hot or change.mode == model.BACKWARD or any(replayed.ratio is None for replayed, _ in hot):
        return "The time goes into starting them."
    if all(_still(replayed, cold) for replayed, cold in hot):
        before = change.case.versions[0]
        return f"The time goes into starting them: replays of a CUDA graph take as long as in {before}."
    return f"Replays of a CUDA graph are {change.word} too: on the device itself so many small ones take longer."


def launch_overhead_on_gpu(change: TimeChange) -> Cause | None:
    """Replays of a graph hold no launches: where they stand still and single calls moved, the call did."""
    cells = change.cells
    hot = [cell.row.hot for cell in cells if cell.row.hot is not None and _still(cell.row.hot, cell.row.latency)]
    if change.case.device != "cuda" or change.mode != model.COLD or not cells or len(hot) < len(cells):
        return None
    evidence, shares = [], []
    for cell in cells:
        latency = cell.row.latency
        one, two = (side.gpu.enqueue_us if side.gpu else None for side in (latency.baseline, latency.this))
        if one is None or two is None:
            continue
        text = f"the host enqueues a call in {apart(cell.versions, brief_time(one), brief_time(two))}"
        evidence.append(cell.seen(text, latency.this.record))
        moved = _change_us(latency)
        if moved:
            shares.append((two - one) / moved)
    # More of it than moved explains nothing.
    enough = bool(shares) and thresholds.MOST <= statistics.median(shares) <= 1 / thresholds.MOST
    ratios = listed(f"{each.ratio:.3f}\N{MULTIPLICATION SIGN}" for each in hot)
    how = f"replays of a CUDA graph, which contain no launches, take {ratios} the time of {change.case.versions[0]}"
    return make_of_time(
        change,
        causes.LATENCY_LAUNCH_OVERHEAD,
        DECISIVE if enough else SUGGESTIVE,
        "overhead_on_gpu",
        evidence[:4],
        [RuledOut(rival="the device's work", how=how, record=cells[0].row.latency.this.record)],
        group=("overhead", change.case.subject),
        measured=enough,
        part="the host's part of a call" if enough else "what surrounds a launch, or a cold cache",
    )


def _still(hot: Latency, cold: Latency) -> bool:
    if hot.ratio is None or cold.ratio is None or hot.verdict in CALLED:
        return False
    return abs(math.log(hot.ratio)) < thresholds.STILL * abs(math.log(cold.ratio))


def launch_overhead_on_cpu(change: TimeChange) -> Cause | None:
    """About the same microseconds more for small problems and large: a call's own cost. Work would grow with them."""
    if change.case.device == "cuda" or change.mode == model.BACKWARD:
        return None
    sized = []
    for cell in change.case.cells:
        size, moved = cell.row.latency.baseline.median_us, _change_us(cell.row.latency)
        if size is not None and moved is not None:
            sized.append((size, moved, cell))
    sized.sort(key=lambda each: each[0])
    if not sized or sized[0][2] not in change.cells:
        return None
    small_us, more_us, _ = sized[0]
    large = [(size, delta) for size, delta, _ in sized if size >= thresholds.LARGER * small_us]
    constant = all(
        abs(delta - more_us) <= max(thresholds.CONSTANT * abs(more_us), thresholds.NOISE * size)
        for size, delta, _ in sized
    )
    grown = thresholds.GROWS * more_us / small_us
    if not large or not constant or any((delta / size - grown) * change.sign > 0 for size, delta in large):
        return None
    size, delta = large[-1]
    changes = [f"{brief_time(more, '+')} of {brief_time(us)}" for us, more in ((small_us, more_us), (size, delta))]
    return make_of_time(
        change,
        causes.LATENCY_LAUNCH_OVERHEAD,
        STRONG if change.around.steady else SUGGESTIVE,
        "overhead_on_cpu",
        [Seen(text=f"the change is {', and '.join(changes)}", record=change.latency(change.cells[0]).this.record)],
        [RuledOut(rival="the work itself", how="its change would grow with the problem"), machine_ruled_out(change)],
        group=("overhead", change.case.subject),
        costs="more" if change.sign > 0 else "less",
    )


# -- the kernel's code, and what is left ------------------------------------------------------------------


def code(change: TimeChange) -> Cause | None:
    """A kernel alone moved, and its machine code with it."""
    case = change.case
    if not case.is_kernel or case.code.state != DIFFERS:
        return None
    found = profiles(case, change.cells)
    return make_of_time(
        change,
        causes.BUILD_MOVED if case.build_differences else causes.KERNEL_CODE_MOVED,
        STRONG if change.around.steady else SUGGESTIVE,
        "code_of_time",
        [case.code.seen, *case.build_differences, *_wrong_output(change)],
        [machine_ruled_out(change), threads_ruled_out(change)],
        [profile_figure(found)] if found is not None else (),
        how=f"its build changed ({in_words(case.build_differences)})"
        if case.build_differences
        else f"its source compiles to other machine code in {case.versions[1]}",
    )


def _wrong_output(change: TimeChange) -> list[Seen]:
    for cell in change.cells:
        latency = change.latency(cell)
        if latency.this.wrong_output or latency.baseline.wrong_output:
            why = latency.this.message or latency.baseline.message
            text = "the output that was timed is wrong, so the time is not that of the problem"
            return [Seen(text=text + (f": {why}" if why else ""), record=cell.record)]
    return []


def unexplained(change: TimeChange) -> Cause:
    case = change.case
    known = case.is_kernel and case.code.state == SAME
    why = "its machine code is the same" if known else "no profile of both environments shows which part of it"
    return make_of_time(
        change,
        causes.UNDECIDED,
        causes.UNDECIDED,
        "unexplained",
        [*([case.code.seen] if case.is_kernel else []), *_wrong_output(change), *differences_seen(case)[:4]],
        [machine_ruled_out(change), excluded("the kernel's code", case.code.seen) if known else None],
        group=("unexplained", case.subject, why),
        why=why,
    )


def leaning(case: CaseFacts) -> Cause | None:
    """Times that lean one way and were not called: no cause is given, and nobody shall believe that they stood."""
    found = [(cell, latency) for cell in case.cells for latency in cell.row.timed if leans(latency)]
    if not case.is_kernel or not found:
        return None
    cells = list(dict.fromkeys(cell for cell, _ in found))
    most = max(len(latency.this.medians_us) for _, latency in found)
    return make(
        case,
        causes.UNDECIDED,
        causes.UNDECIDED,
        "leaning",
        cells,
        [cell.seen(latency.why, latency.this.record) for cell, latency in found[:4]],
        about=causes.LATENCY,
        command=f"{case.command(cells)} --launches {max(20, 2 * most)}",
        group=("leans",),
        workloads=listed(cell.workload for cell in cells),
    )
