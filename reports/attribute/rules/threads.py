"""Rules for times that moved with the number of threads: PyTorch's, and those at work."""

from __future__ import annotations

import math
import statistics

from harness.worker import protocol
from reports import model
from reports.attribute import causes, thresholds
from reports.attribute.causes import DECISIVE, STRONG, SUGGESTIVE, Cause, RuledOut
from reports.attribute.evidence import differences_seen, excluded, machine_ruled_out, number
from reports.attribute.facts.cells import CellFacts
from reports.attribute.facts.times import TimeChange, processors
from reports.attribute.wording import make_of_time
from reports.model import Seen
from reports.text import apart


def thread_count(change: TimeChange) -> Cause | None:
    """By PyTorch's threads: fewer compute where it is slower, or more of them than there are processors take turns."""
    case = change.case
    one, two = change.threads
    for cell in change.cells:
        profiles = [found[0] for name in case.environments if (found := cell.profile(name)) is not None]
        counts = [record.threads for record in profiles if record.threads]
        if len(counts) == 2 and one == two:
            one, two = counts
    if not one or not two or one == two or change.at_work_alike:
        return None
    most, shared = max(one, two), processors(case) or 0
    fewer = (two < one) == (change.verdict == model.REGRESSED)
    if not fewer and (not shared or most <= shared):
        return None
    explained = max(one / two, two / one) * thresholds.THREADS_EXPLAIN
    within = all(max(ratio, 1 / ratio) <= explained for ratio in change.ratios)
    where = apart(case.versions, number(one, "thread"), two)
    return make_of_time(
        change,
        causes.LATENCY_THREAD_COUNT,
        DECISIVE if fewer and within and change.around.alike else STRONG,
        "fewer_threads" if fewer else "too_many_threads",
        [Seen(text=where if fewer else f"{where}, for {shared} processors"), *differences_seen(case, of_threads=True)],
        [excluded("the kernel's code", case.code) if case.is_kernel else None],
        group=("threads", str(one), str(two)),
        here=number(two, "thread"),
        compute="computes" if two == 1 else "compute",
        before=one,
        most=number(most, "thread"),
        where=case.versions[two > one],
        processors=number(shared, "processor"),
    )


def lost_threads(change: TimeChange) -> Cause | None:
    """As much processor time as before, by fewer processors at a time: what ran side by side runs one after the other,
    whatever number of threads PyTorch has. Not where the processors were taken by others."""
    if change.busier("busy") or change.busier("steal"):
        return None
    seen = [found for cell in change.cells if (found := _fewer_at_work(change, cell)) is not None]
    if not seen or len(seen) < len(change.cells):
        return None
    return make_of_time(
        change,
        causes.LATENCY_THREAD_COUNT,
        STRONG,
        "lost_threads",
        seen[:3],
        [
            RuledOut(rival="more work", how="the processor time of a call did not change with it"),
            RuledOut(rival="other processes", how="they took no more of the machine"),
        ],
        group=("threads at work", change.case.subject),
        measured=True,
        fewer="fewer" if change.sign > 0 else "more",
    )


def _fewer_at_work(change: TimeChange, cell: CellFacts) -> Seen | None:
    """What shows it of one cell: in every launch of the slower side fewer than in any of the other's."""
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
    text = (
        f"its calls kept {apart(cell.versions, f'{one:.2f} processors busy', f'{two:.2f}')}; the processor time of a "
        f"call is {ratio * two / one:.2f} times that of {cell.versions[0]}"
    )
    return cell.seen(text, latency.this.record)


def starts_threads(change: TimeChange) -> Cause | None:
    """Each call of the slower side starts threads: whoever else of its launches is slower, this is its own."""
    seen = [_starts(change, cell) for cell in change.cells]
    return _own_threads(change, [[each] for each in seen if each is not None]) if all(seen) else None


def more_threads(change: TimeChange) -> Cause | None:
    """The slower side's calls keep more processors busy than PyTorch has threads, or their threads come and go all the
    time, and the other's do not: threads of the kernel's own, which wait for each other."""
    seen = [[s for rule in (_beyond, _restless) if (s := rule(change, cell)) is not None] for cell in change.cells]
    return _own_threads(change, seen) if change.case.is_kernel and all(seen) else None


def _own_threads(change: TimeChange, seen: list[list[Seen]]) -> Cause:
    """That there is more work to do, or that something else is waited for, is not excluded."""
    rest = Seen(text="not excluded: it has more work to do, or waits for something else")
    return make_of_time(
        change,
        causes.LATENCY_THREAD_COUNT,
        SUGGESTIVE,
        "own_threads",
        [*(s for each in seen[:3] for s in each), rest],
        [machine_ruled_out(change)],
        group=("threads of its own", change.case.subject),
        where=change.case.versions[change.sign > 0],
    )


def _beyond(change: TimeChange, cell: CellFacts) -> Seen | None:
    """That one cell's calls keep more processors busy than PyTorch has threads, in every launch of one side alone."""
    sides, threads = change.at_work(cell), change.same_threads
    if sides is None or threads is None:
        return None
    slower, faster = change.slower_first(*sides)
    beyond = thresholds.BEYOND_THREADS
    if min(slower) < (1 + beyond) * threads or max(faster) > (1 + beyond / 3) * threads:
        return None
    one, two = map(statistics.median, sides)
    reported = f"PyTorch reports {number(threads, 'thread')} in both"
    text = f"its calls kept {apart(cell.versions, f'{one:.2f} processors busy', f'{two:.2f}')}; {reported}"
    return cell.seen(text, change.latency(cell).this.record)


def _starts(change: TimeChange, cell: CellFacts) -> Seen | None:
    """That one cell's calls start threads, in every launch of the slower side at least twice as many as in any of the
    other's, and not because the machine does."""
    sides = change.of_calls(cell, lambda _, timing: timing.threads_started)
    if sides is None:
        return None
    slower, faster = change.slower_first(*sides)
    least = max(thresholds.THREADS_STARTED, thresholds.THREADS_MORE * max(faster))
    if min(slower) < least or not _by_itself(change, cell):
        return None
    one, two = (f"{statistics.median(side):,.0f}" for side in sides)
    text = f"each of its calls started {apart(cell.versions, f'{one} threads', two)}"
    return cell.seen(text, change.latency(cell).this.record)


def _by_itself(change: TimeChange, cell: CellFacts) -> bool:
    """Whether another target of the slower side's launches starts fewer threads in the same time: those of other
    processes, which are counted too, would meet both alike."""
    rates: dict[tuple[str, str], list[float]] = {}
    for _, timing in change.timings(cell, change.slower_environment):
        if timing.threads_started is not None and timing.samples_us:
            rate = timing.threads_started / statistics.median(timing.samples_us)
            rates.setdefault((timing.workload, timing.target), []).append(rate)
    own = min(rates.get((cell.workload, cell.target), [0.0]))
    others = [max(found) for (_, target), found in rates.items() if _another(target, cell)]
    return not others or thresholds.THREADS_MORE * min(others) <= own


def _another(target: str, cell: CellFacts) -> bool:
    """A target's backward pass by itself is no other target."""
    return target.partition(protocol.BACKWARD)[0] != cell.target


def _restless(change: TimeChange, cell: CellFacts) -> Seen | None:
    """That one cell's threads leave their processors all the time, in every launch of one side, and in none of the
    other's, nor in any other target's calls. What a variable tells threads to do while they wait is another matter."""
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
    one, two = (f"{statistics.median(side):.3g}" for side in sides)
    text = (
        f"in each millisecond of its calls threads left their processors {apart(cell.versions, f'{one} times', two)}; "
        f"PyTorch reports {number(threads, 'thread')} in both"
    )
    return cell.seen(text, change.latency(cell).this.record)
