"""Rules for times that moved with the number of threads: those that PyTorch tells, and those at work. Pure."""

from __future__ import annotations

import math
import statistics

from harness.schema.records import LaunchRecord, Timing
from reports import model
from reports.attribute import thresholds
from reports.attribute.cases import Case
from reports.attribute.cells import Cell
from reports.attribute.machine import loads, processors
from reports.attribute.making import excluded, number
from reports.attribute.model import DECISIVE, LATENCY_THREAD_COUNT, STRONG, SUGGESTIVE, Cause, Ruled
from reports.attribute.timed import Timed, differences_seen
from reports.compare.factors import SAME
from reports.model import Seen


def threads_told(case: Case, environment: str) -> int | None:
    """Threads that PyTorch told in the launches, else when the environment was observed."""
    kernels = [case.kernel] if case.is_kernel else [kernel.name for kernel in case.evidence.run.kernels]
    for kernel in kernels:
        records = case.evidence.launch_records.get((environment, kernel, case.device), [])
        told = {record.threads for record in records if record.threads}
        if len(told) == 1:
            return told.pop()
    stack = case.evidence.environments.get(environment)
    return stack.observed.threads if stack is not None and stack.observed is not None else None


def thread_count(timed: Timed) -> Cause | None:
    case = timed.case
    one, two = (threads_told(case, name) for name in (case.baseline, case.environment))
    for cell in timed.cells:
        profiles = [cell.profile(name) for name in (case.baseline, case.environment)]
        told = [found[0].threads for found in profiles if found is not None]
        if len(told) == 2 and all(told) and one == two:
            one, two = told
    if not one or not two or one == two or at_work_alike(timed):
        return None
    if (two < one) != (timed.verdict == model.REGRESSED):
        return _too_many_threads(timed, one, two)
    ratios = [ratio for cell in timed.cells if (ratio := timed.latency(cell).ratio)]
    most = max(one / two, two / one)
    within = all(max(ratio, 1 / ratio) <= most * thresholds.THREADS_EXPLAIN for ratio in ratios)
    return timed.make(
        LATENCY_THREAD_COUNT,
        DECISIVE if within and timed.around.alike else STRONG,
        f"{case.subject} is {timed.extent}, because {number(two, 'thread')} compute{'s' if two == 1 else ''} here, and "
        f"{one} in the baseline.",
        [
            Seen(text=f"{number(one, 'thread')} in the baseline's launches, {two} here"),
            *differences_seen(case, of_threads=True),
        ],
        [excluded("the kernel's code", case.code.seen) if case.is_kernel and case.code.state == SAME else None],
        gist=("threads", str(one), str(two)),
    )


def _too_many_threads(timed: Timed, one: int, two: int) -> Cause | None:
    """Slower with more threads: where there are more of them than processors, they wait for each other."""
    case = timed.case
    shared = processors(case)
    if shared is None or max(one, two) <= shared:
        return None
    return timed.make(
        LATENCY_THREAD_COUNT,
        STRONG,
        f"{case.subject} is {timed.extent}: {number(max(one, two), 'thread')} "
        f"{'here' if two > one else 'in the baseline'} share {number(shared, 'processor')}, and take turns.",
        [
            Seen(text=f"{number(one, 'thread')} in the baseline's launches, {two} here, for {shared} processors"),
            *differences_seen(case, of_threads=True),
        ],
        [excluded("the kernel's code", case.code.seen) if case.is_kernel and case.code.state == SAME else None],
        gist=("threads", str(one), str(two)),
    )


def at_work_alike(timed: Timed) -> bool:
    """Whether every cell's calls keep as many processors busy on both sides: then it is not by threads that they became
    slower. False where that was not recorded."""
    for cell in timed.cells:
        base, this = (_at_work(timed.case, cell, name) for name in (timed.case.baseline, timed.case.environment))
        if min(len(base), len(this)) < thresholds.FEWEST_LAUNCHES:
            return False
        one, two = statistics.median(base), statistics.median(this)
        if not one or not two or max(one / two, two / one) > thresholds.AS_BUSY:
            return False
    return True


def threads_ruled_out(timed: Timed) -> Ruled | None:
    one, two = (threads_told(timed.case, name) for name in (timed.case.baseline, timed.case.environment))
    if one == two or not at_work_alike(timed):
        return None
    return Ruled(rival="the number of threads", how="its calls keep as many processors busy in both environments")


def lost_threads(timed: Timed) -> Cause | None:
    """As much processor time as before, by fewer processors at a time: what ran side by side runs one after the other,
    whatever number of threads PyTorch tells. Not where the processors were taken by others."""
    case = timed.case
    seen = [loads(case, environment) for environment in (case.baseline, case.environment)]
    for name in ("busy", "steal"):
        one, two = (statistics.median(load[name]) if load[name] else 0.0 for load in seen)
        if (two - one) * timed.sign > thresholds.BUSIER:
            return None
    told = [(cell, found) for cell in timed.cells if (found := _fewer_at_work(timed, cell)) is not None]
    if not told or len(told) < len(timed.cells):
        return None
    return timed.make(
        LATENCY_THREAD_COUNT,
        STRONG,
        f"{case.subject} is {timed.extent}, and works on {'fewer' if timed.sign > 0 else 'more'} processors at a time: "
        "another number of threads computes, whatever PyTorch tells.",
        [seen for _, seen in told[:3]],
        [
            Ruled(rival="more work", how="the processor time of a call did not move with it"),
            Ruled(rival="other processes", how="they took no more of the machine"),
        ],
        gist=("threads at work", case.subject),
        measured=True,
    )


def _fewer_at_work(timed: Timed, cell: Cell) -> Seen | None:
    """What says so of one cell: in every launch of the slower side fewer than in any of the other's."""
    sides = [_at_work(timed.case, cell, name) for name in (timed.case.baseline, timed.case.environment)]
    latency = timed.latency(cell)
    times = [latency.baseline.median_us, latency.this.median_us]
    if min(map(len, sides)) < thresholds.FEWEST_LAUNCHES or None in times:
        return None
    slower, faster = (sides[1], sides[0]) if timed.sign > 0 else (sides[0], sides[1])
    one, two = map(statistics.median, sides)
    if not one or not two or max(slower) >= min(faster):
        return None
    ratio = (times[1] or 0.0) / (times[0] or 1.0)
    if ratio in (0.0, 1.0):
        return None
    fell = math.log(one / two) / math.log(ratio)
    if not thresholds.MOST <= fell <= 1 / thresholds.MOST or abs(math.log(ratio * two / one)) > thresholds.SAME_WORK:
        return None
    text = (
        f"{cell.workload}: its calls kept {one:.2f} processors busy in the baseline, {two:.2f} here; the processor "
        f"time of a call is {ratio * two / one:.2f} times the baseline's"
    )
    return Seen(text=text, record=latency.this.record)


def starts_threads(timed: Timed) -> Cause | None:
    """Each call of the slower side starts threads: whoever else of its launches is slower, this is its own."""
    told = [_starts(timed, cell) for cell in timed.cells]
    return _own_threads(timed, [[seen] for seen in told if seen is not None]) if all(told) else None


def more_threads(timed: Timed) -> Cause | None:
    """The slower side's calls keep more processors busy than PyTorch has threads, or their threads come and go all the
    time, and the other's do not: threads of the kernel's own, which wait for each other."""
    told = [[seen for rule in (_beyond, _restless) if (seen := rule(timed, cell)) is not None] for cell in timed.cells]
    return _own_threads(timed, told) if timed.case.is_kernel and all(told) else None


def _own_threads(timed: Timed, told: list[list[Seen]]) -> Cause:
    """That there is more work to do, or that something else is waited for, is not excluded."""
    case = timed.case
    where = "here" if timed.sign > 0 else "in the baseline"
    return timed.make(
        LATENCY_THREAD_COUNT,
        SUGGESTIVE,
        f"{case.subject} is {timed.extent}, and computes {where} by more threads than PyTorch has.",
        [
            *(seen for each in told[:3] for seen in each),
            Seen(text="not excluded: that it has more work to do, or waits for something else"),
        ],
        [timed.machine_ruled_out],
        gist=("threads of its own", case.subject),
        command=case.explain(timed.cells),
    )


def _same_threads(case: Case) -> int | None:
    """What PyTorch tells in both environments, where that is one number."""
    one, two = (threads_told(case, name) for name in (case.baseline, case.environment))
    return one if one == two else None


def _beyond(timed: Timed, cell: Cell) -> Seen | None:
    """That one cell's calls keep more processors busy than PyTorch has threads, in every launch of one side alone."""
    base, this = (_at_work(timed.case, cell, name) for name in (timed.case.baseline, timed.case.environment))
    threads = _same_threads(timed.case)
    if min(len(base), len(this)) < thresholds.FEWEST_LAUNCHES or threads is None:
        return None
    slower, faster = (this, base) if timed.sign > 0 else (base, this)
    if (
        min(slower) < (1 + thresholds.BEYOND_THREADS) * threads
        or max(faster) > (1 + thresholds.BEYOND_THREADS / 3) * threads
    ):
        return None
    text = (
        f"{cell.workload}: its calls kept {statistics.median(base):.2f} processors busy in the baseline, "
        f"{statistics.median(this):.2f} here; PyTorch tells {number(threads, 'thread')} in both"
    )
    return Seen(text=text, record=timed.latency(cell).this.record)


def _starts(timed: Timed, cell: Cell) -> Seen | None:
    """That one cell's calls start threads, in every launch of the slower side at least twice as many as in any of the
    other's, and not because the machine does."""
    case = timed.case
    base, this = (_of_calls(case, cell, name, "threads_started") for name in (case.baseline, case.environment))
    if min(len(base), len(this)) < thresholds.FEWEST_LAUNCHES:
        return None
    slower, faster = (this, base) if timed.sign > 0 else (base, this)
    if min(slower) < max(thresholds.THREADS_STARTED, thresholds.THREADS_MORE * max(faster)) or not _by_itself(
        timed, cell
    ):
        return None
    one, two = (f"{statistics.median(side):,.0f}" for side in (base, this))
    text = f"{cell.workload}: each of its calls started {one} threads in the baseline, {two} here"
    return Seen(text=text, record=timed.latency(cell).this.record)


def _by_itself(timed: Timed, cell: Cell) -> bool:
    """Whether another target of the slower side's launches starts fewer threads in the same time: those of other
    processes, which are counted too, would meet both alike."""
    rates: dict[tuple[str, str], list[float]] = {}
    for _, timing in _timings(timed.case, cell, timed.case.environment if timed.sign > 0 else timed.case.baseline):
        if timing.threads_started is not None and timing.samples_us:
            rate = timing.threads_started / statistics.median(timing.samples_us)
            rates.setdefault((timing.workload, timing.target), []).append(rate)
    own = min(rates.get((cell.workload, cell.target), [0.0]))
    others = [max(found) for (_, target), found in rates.items() if target != cell.target]
    return not others or thresholds.THREADS_MORE * min(others) <= own


def _restless(timed: Timed, cell: Cell) -> Seen | None:
    """That one cell's threads leave their processors all the time, in every launch of one side, and in none of the
    other's, nor in any other target's calls. What a variable tells threads to do while they wait is another matter."""
    case = timed.case
    base, this = (_of_calls(case, cell, name, "switches_per_ms") for name in (case.baseline, case.environment))
    threads = _same_threads(case)
    if min(len(base), len(this)) < thresholds.FEWEST_LAUNCHES or threads is None or case.variables:
        return None
    slower, faster = (this, base) if timed.sign > 0 else (base, this)
    others = _of_calls(
        case, cell, case.environment if timed.sign > 0 else case.baseline, "switches_per_ms", others=True
    )
    if min(slower) < thresholds.RESTLESS or max((*faster, *others)) > thresholds.CALM:
        return None
    one, two = (f"{statistics.median(side):.3g}" for side in (base, this))
    text = (
        f"{cell.workload}: in each millisecond of its calls threads left their processors {one} times in the baseline, "
        f"{two} here; PyTorch tells {number(threads, 'thread')} in both"
    )
    return Seen(text=text, record=timed.latency(cell).this.record)


def _timings(case: Case, cell: Cell, environment: str) -> list[tuple[LaunchRecord, Timing]]:
    """Of all launches that measured this cell."""
    kernel = cell.row.latency.this.measured_with or cell.row.latency.baseline.measured_with or cell.kernel
    return [
        (launch, timing)
        for launch in case.evidence.launch_records.get((environment, kernel, case.device), [])
        for timing in launch.timings
        if timing.status == "ok"
    ]


def _of_calls(case: Case, cell: Cell, environment: str, what: str, others: bool = False) -> list[float]:
    """A field of one target's timings, or of all others', by launch."""
    found = [
        getattr(timing, what)
        for _, timing in _timings(case, cell, environment)
        if ((timing.workload, timing.target) == (cell.workload, cell.target)) != others
        and (not others or timing.target != cell.target)
    ]
    return [value for value in found if value is not None]


def _at_work(case: Case, cell: Cell, environment: str) -> list[float]:
    """Processors that one target's calls kept busy, in each launch, without what its process does besides."""
    return [
        max(0.0, timing.busy_processors - (launch.idle_processors or 0.0))
        for launch, timing in _timings(case, cell, environment)
        if (timing.workload, timing.target) == (cell.workload, cell.target) and timing.busy_processors is not None
    ]
