"""Rules for times that changed: with an operator, with what a call costs beside its work, with threads, with
the machine, or with a kernel's own code.
"""

from __future__ import annotations

import math
import statistics

from harness.worker import protocol
from reports import model
from reports.attribute import thresholds
from reports.attribute.cases import CaseFacts
from reports.attribute.causes import Kind, Rival
from reports.attribute.cells import CellFacts, operators_moved
from reports.attribute.finding import Finding, Shown, first_of
from reports.attribute.profiles import OperatorChange, Profiles, another_backend, lines_run, own, profiles
from reports.attribute.times import CALLED, Sides, TimeChange, leans, processors
from reports.compare.factors import DIFFERS, SAME, operator_names, operators_seen
from reports.model import Latency, Seen
from reports.text import apart, brief_time, count_of, function_name

# -- the machine ------------------------------------------------------------------------------------------


def clock_or_load(change: TimeChange) -> Finding | None:
    """The clock moved with the time, or all targets moved together and the machine was not the same."""
    log_time = statistics.median(map(math.log, change.ratios))
    by_clock = change.clock_moved and bool(log_time) and -math.log(change.clock) / log_time >= thresholds.MOST
    everywhere = change.around.everywhere
    own_load = _busier_in_every_launch(change, "own", "while it called nothing, the launch's own process used")
    # Where another target of the same launches stood, others did not slow everything.
    others = [] if change.around.steady else _busier_in_every_launch(change, "busy", "other processes used")
    load = change.loads_seen
    if not (by_clock or everywhere or others or own_load):
        return None
    measured = bool(by_clock or load or others or own_load)
    alike = f"{change.around.alike} of {change.around.total} other targets became {change.word} too"
    return Finding(
        cells=change.cells,
        shown=Shown.FOLLOWED if by_clock and everywhere else Shown.TOGETHER,
        needs={"another reason that all targets share": measured},
        out={Rival.ONE_OPERATOR: alike if everywhere else None},
        seen=[*own_load, *others, *load],
        measured=measured,
        words={"how": "clock" if by_clock else "own" if own_load else "others" if others else "everywhere"},
    )


def _busier_in_every_launch(change: TimeChange, kind: str, who: str) -> list[Seen]:
    """Return that it was. Launches of both environments take turns: what is busy in all of one's and in none of the
    other's, be it other processes or threads that a launch's own process has beside those that were called, came with
    it."""
    base, this = change.loads(kind)
    slower, faster = change.slower_first(base, this)
    if min(len(slower), len(faster)) < thresholds.FEWEST_LAUNCHES or min(slower) - max(faster) <= thresholds.BUSIER:
        return []
    shares = (
        f"{who} {min(base):.0%} to {max(base):.0%} of the machine in each of {len(base)} launches",
        f"{min(this):.0%} to {max(this):.0%} in each of {len(this)}",
    )
    return [Seen(text=apart(change.case.versions, *shares))]


# -- threads ----------------------------------------------------------------------------------------------


def thread_count(change: TimeChange) -> Finding | None:
    """By PyTorch's threads: fewer compute where it is slower, or more of them than there are processors take turns."""
    case = change.case
    one, two = change.threads
    for cell in change.cells:
        records = [found[0] for name in case.environments if (found := cell.profile(name)) is not None]
        counts = [record.threads for record in records if record.threads]
        if len(counts) == 2 and one == two:
            one, two = counts
    if not one or not two or one == two or change.at_work_alike:
        return None
    shared = processors(case) or 0
    fewer = (two < one) == (change.sign > 0)
    if not fewer and (not shared or max(one, two) <= shared):
        return None
    explained = max(one / two, two / one) * thresholds.THREADS_EXPLAIN
    within = all(max(ratio, 1 / ratio) <= explained for ratio in change.ratios)
    return Finding(
        cells=change.cells,
        shown=Shown.FOLLOWED,
        needs={"another reason beside the threads": fewer and within and change.around.alike},
        differences=[each for each in case.differences if each.of_threads],
        words={"how": "fewer" if fewer else "too many", "threads": (one, two), "processors": shared},
    )


def lost_threads(change: TimeChange) -> Finding | None:
    """As much processor time as before, by fewer processors at a time: what ran side by side runs one after the other,
    whatever number of threads PyTorch has. Not where the processors were taken by others."""
    seen = [_fewer_at_work(change, cell) for cell in change.cells]
    if change.busier("busy") or change.busier("steal") or not all(seen):
        return None
    return Finding(
        cells=change.cells,
        shown=Shown.TOGETHER,
        out={Rival.MACHINE: "other processes took no more of the machine"},
        seen=seen[:3],
        measured=True,
        words={"how": "lost"},
    )


def _fewer_at_work(change: TimeChange, cell: CellFacts) -> Seen | None:
    """Return what shows it of one cell: in every launch of the slower side fewer than in any of the other's."""
    sides, latency = change.at_work(cell), change.latency(cell)
    base_us, this_us = latency.baseline.median_us, latency.this.median_us
    if sides is None or not base_us or not this_us or base_us == this_us:
        return None
    slower, faster = change.slower_first(*sides)
    one, two = map(statistics.median, sides)
    if not one or not two or max(slower) >= min(faster):
        return None
    ratio = this_us / base_us
    fell = math.log(one / two) / math.log(ratio)
    if not thresholds.MOST <= fell <= 1 / thresholds.MOST or abs(math.log(ratio * two / one)) > thresholds.SAME_WORK:
        return None
    busy = apart(cell.versions, f"{one:.2f} processors busy", f"{two:.2f}")
    return cell.seen(f"its calls kept {busy}", latency.this.record)


def starts_threads(change: TimeChange) -> Finding | None:
    """Each call of the slower side starts threads: whoever else of its launches is slower, this is its own."""
    return _own_threads(change, [_starts(change, cell) for cell in change.cells])


def more_threads(change: TimeChange) -> Finding | None:
    """The slower side's calls keep more processors busy than PyTorch has threads, or their threads come and go all the
    time, and the other's do not: threads of the kernel's own, which wait for each other."""
    if not change.case.is_kernel:
        return None
    return _own_threads(change, [_beyond(change, cell) or _restless(change, cell) for cell in change.cells])


def _own_threads(change: TimeChange, seen: list[Seen | None]) -> Finding | None:
    if not all(seen):
        return None
    return Finding(
        cells=change.cells,
        shown=Shown.TOGETHER,
        needs={"it has more work to do, or waits for something else": None},
        seen=seen[:3],
        words={"how": "own"},
    )


def _told_apart(change: TimeChange, cell: CellFacts, sides: Sides, what: str, form: str) -> Seen:
    one, two = (format(statistics.median(side), form) for side in sides)
    threads = f"; PyTorch reports {count_of(change.same_threads, 'thread')} in both" if change.same_threads else ""
    return cell.seen(f"{what}: {apart(cell.versions, one, two)}{threads}", change.latency(cell).this.record)


def _beyond(change: TimeChange, cell: CellFacts) -> Seen | None:
    """Return that one cell's calls keep more processors busy than PyTorch has threads, in every launch of one side
    only."""
    sides, threads = change.at_work(cell), change.same_threads
    if sides is None or threads is None:
        return None
    slower, faster = change.slower_first(*sides)
    beyond = thresholds.BEYOND_THREADS
    if min(slower) < (1 + beyond) * threads or max(faster) > (1 + beyond / 3) * threads:
        return None
    return _told_apart(change, cell, sides, "processors that its calls kept busy", ".2f")


def _starts(change: TimeChange, cell: CellFacts) -> Seen | None:
    """Return that one cell's calls start threads, in every launch of the slower side at least twice as many as in any
    of the other's, and not because the machine does: threads of other processes would meet other targets alike."""
    sides = change.of_calls(cell, lambda _, timing: timing.threads_started)
    if sides is None:
        return None
    slower, faster = change.slower_first(*sides)
    if min(slower) < max(thresholds.THREADS_STARTED, thresholds.THREADS_MORE * max(faster)):
        return None
    rates: dict[bool, list[float]] = {True: [], False: []}
    for _, timing in change.timings(cell, change.slower_environment):
        if timing.threads_started is not None and timing.samples_us:
            rate = timing.threads_started / statistics.median(timing.samples_us)
            rates[_another(timing.target, cell)].append(rate)
    if rates[True] and thresholds.THREADS_MORE * max(rates[True]) > min(rates[False], default=0.0):
        return None
    return _told_apart(change, cell, sides, "threads that each of its calls started", ",.0f")


def _another(target: str, cell: CellFacts) -> bool:
    """Return whether it is another target: a target's backward pass by itself is none."""
    return target.partition(protocol.BACKWARD)[0] != cell.target


def _restless(change: TimeChange, cell: CellFacts) -> Seen | None:
    """Return that one cell's threads leave their processors all the time, in every launch of one side, and in none of
    the other's, nor in any other target's calls. What a variable tells threads to do while they wait is another
    matter."""
    sides, threads = change.of_calls(cell, lambda _, timing: timing.switches_per_ms), change.same_threads
    if sides is None or threads is None or change.case.variables:
        return None
    slower, faster = change.slower_first(*sides)
    others = [
        timing.switches_per_ms
        for _, timing in change.timings(cell, change.slower_environment)
        if _another(timing.target, cell) and timing.switches_per_ms is not None
    ]
    if min(slower) < thresholds.RESTLESS or max((*faster, *others)) > thresholds.CALM:
        return None
    return _told_apart(change, cell, sides, "times that threads left their processors in each millisecond", ".3g")


# -- operators --------------------------------------------------------------------------------------------


def operator(change: TimeChange) -> Finding | None:
    case, cells = change.case, change.cells
    found = profiles(case, cells)
    if found is not None:
        return _from_profile(change, found)
    if case.is_kernel:
        return None
    moved = any(operators_moved(*cell.sides) for cell in cells)
    return Finding(
        cells=cells,
        shown=Shown.TOGETHER,
        needs={Rival.MACHINE: moved or change.around.steady},
        seen=[operators_seen(*cells[0].sides, case.versions)] if cells[0].sides[1].operators else [],
        words={"named": (), "moved": moved, "operators": sorted(operator_names(cells[0].sides[1].operators))},
    )


def _from_profile(change: TimeChange, found: Profiles) -> Finding | None:
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
    text = (
        f"under the profiler, whose own cost is included, the time of a call changed by {brief_time(total, '+')}; the "
        f"operators named make {min(share, 1):.0%} of that"
    )
    swapped = another_backend(case, cell)
    chosen = None
    if swapped is not None:
        chosen = Finding(
            cells=change.cells,
            shown=Shown.TOGETHER,
            kind=Kind.DEFAULT_BACKEND_MOVED,
            seen=[Seen(text=f"by its profiles: {swapped.text}", record=swapped.record)],
            words={"how": "chosen", "before": swapped.before, "here": swapped.here},
        )
    return Finding(
        cells=change.cells,
        shown=Shown.FOLLOWED,
        needs={
            "other operators": share >= thresholds.WHOLE,
            "what the profiler itself costs": agrees,
            Rival.MACHINE: change.around.alike < max(1, change.around.total),
        },
        seen=[Seen(text=text, record=found.path)],
        profiles=found,
        lines=lines_run(case, cell),
        # The same operators, only slower, may be slowed by whatever else moved.
        measured=not all(each.alike for each in leading),
        words={"named": [(function_name(each.name), each.word) for each in leading]},
        details={"leading": leading, "moved": True},
        also=chosen,
    )


def _change_us(latency: Latency) -> float | None:
    base, this = latency.baseline.median_us, latency.this.median_us
    return this - base if base is not None and this is not None else None


def many_small_calls(change: TimeChange) -> Finding | None:
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
    return Finding(
        cells=change.cells,
        shown=Shown.TOGETHER,
        out={Rival.ONE_OPERATOR: "each call of an operator takes less time than before"},
        profiles=found,
        lines=lines_run(change.case, found.cell),
        measured=True,
        words={"how": "many"},
        details={"calls": (one, two)},
    )


def launch_overhead_on_gpu(change: TimeChange) -> Finding | None:
    """Replays of a graph hold no launches: where they stand still and single calls moved, the call did."""
    cells = change.cells
    hot = [cell.row.hot for cell in cells if cell.row.hot is not None and _still(cell.row.hot, cell.row.latency)]
    if change.case.device != "cuda" or change.mode != model.COLD or not cells or len(hot) < len(cells):
        return None
    seen, shares = [], []
    for cell in cells:
        latency = cell.row.latency
        one, two = (side.gpu.enqueue_us if side.gpu else None for side in (latency.baseline, latency.this))
        if one is None or two is None:
            continue
        text = f"the host enqueues a call in {apart(cell.versions, brief_time(one), brief_time(two))}"
        seen.append(cell.seen(text, latency.this.record))
        moved = _change_us(latency)
        if moved:
            shares.append((two - one) / moved)
    # More of it than moved explains nothing.
    enough = bool(shares) and thresholds.MOST <= statistics.median(shares) <= 1 / thresholds.MOST
    return Finding(
        cells=cells,
        shown=Shown.FOLLOWED if enough else Shown.HINT,
        out={Rival.ONE_OPERATOR: "replays of a CUDA graph, which contain no launches, take as long as before"},
        seen=seen[:4],
        measured=enough,
        words={"how": "host" if enough else "around"},
    )


def _still(hot: Latency, cold: Latency) -> bool:
    if hot.ratio is None or cold.ratio is None or hot.verdict in CALLED:
        return False
    return abs(math.log(hot.ratio)) < thresholds.STILL * abs(math.log(cold.ratio))


def launch_overhead_on_cpu(change: TimeChange) -> Finding | None:
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
    changes = [f"{brief_time(more, '+')} of {brief_time(us)}" for us, more in ((small_us, more_us), large[-1])]
    return Finding(
        cells=change.cells,
        shown=Shown.TOGETHER,
        needs={Rival.MACHINE: change.around.steady},
        seen=[Seen(text=f"the change is {', and '.join(changes)}")],
        words={"how": "call"},
    )


# -- the kernel's code, and what is left ------------------------------------------------------------------


def code(change: TimeChange) -> Finding | None:
    """A kernel moved by itself, and its machine code with it."""
    case = change.case
    if not case.is_kernel or case.code.state != DIFFERS:
        return None
    return Finding(
        cells=change.cells,
        shown=Shown.TOGETHER,
        kind=Kind.BUILD_MOVED if case.build_differences else Kind.KERNEL_CODE_MOVED,
        needs={Rival.MACHINE: change.around.steady},
        profiles=profiles(case, change.cells),
        code=True,
        words={"how": "cost"},
    )


def unexplained(change: TimeChange) -> Finding | None:
    case = change.case
    known = case.is_kernel and case.code.state == SAME
    why = "its machine code is the same" if known else "no profile of both environments shows which part of it"
    return Finding(
        cells=change.cells,
        shown=Shown.NOT,
        code=True,
        differences=case.differences,
        words={"verdict": "", "moved": False, "why": why},
    )


def leaning(case: CaseFacts) -> Finding | None:
    """Times that lean one way and were not called: no cause is given, and nobody shall believe that they stood."""
    found = [(cell, latency) for cell in case.cells for latency in cell.row.timed if leans(latency)]
    if not case.is_kernel or not found:
        return None
    cells = first_of([], found)
    most = max(len(latency.this.medians_us) for _, latency in found)
    return Finding(
        cells=cells,
        shown=Shown.NOT,
        seen=[cell.seen(latency.why, latency.this.record) for cell, latency in found[:4]],
        command=f"{case.command(cells)} --launches {max(20, 2 * most)}",
        words={"leans": True},
    )
