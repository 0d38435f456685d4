"""Rules for times that moved with one of PyTorch's operators, or with what a call costs beside its work. Pure."""

from __future__ import annotations

import math
import statistics

from reports import model
from reports.attribute import thresholds
from reports.attribute.cells import Cell, operators_moved
from reports.attribute.making import listed
from reports.attribute.model import (
    DECISIVE,
    DEFAULT_BACKEND_MOVED,
    LATENCY_LAUNCH_OVERHEAD,
    LATENCY_OPERATOR,
    STRONG,
    SUGGESTIVE,
    Cause,
    Ruled,
)
from reports.attribute.model import told as told_together
from reports.attribute.profiles import Change, another_backend, own, profile_figure, profiled, ways_seen
from reports.attribute.timed import CALLED, Timed
from reports.compare.factors import operator_names, operators_seen
from reports.model import Latency, Seen
from reports.text import brief_time


def operator(timed: Timed) -> Cause | None:
    case = timed.case
    found = profiled(timed)
    if found is not None:
        return _from_profile(timed, *found)
    if case.is_kernel:
        return None
    cells = [cell for cell in timed.cells if operators_moved(*cell.sides)]
    told = [operators_seen(*timed.cells[0].sides)] if timed.cells[0].sides[1].operators else []
    if cells:
        statement = f"{case.subject} is {timed.extent}: another operator runs under that name."
        grade = STRONG
    else:
        statement = (
            f"{case.subject} is {timed.extent}, by the same operator: its own implementation moved. Which part of it, "
            "a profile would tell."
        )
        grade = STRONG if timed.around.steady else SUGGESTIVE
    return timed.make(
        LATENCY_OPERATOR,
        grade,
        statement,
        told,
        [timed.machine_ruled_out, Ruled(rival="the kernel under test", how="it takes no part in a reference's time")],
        gist=("operator", *sorted(operator_names(timed.cells[0].sides[1].operators))) if told else (),
        command=case.explain(timed.cells),
    )


def _from_profile(timed: Timed, cell: Cell, changes: list[Change], path: str) -> Cause | None:
    """The profile's own change must go the way of the measured one, or it explains nothing."""
    case = timed.case
    total = sum(change.delta_us for change in changes)
    latency = timed.latency(cell)
    one, two = latency.baseline.median_us, latency.this.median_us
    measured = two - one if one is not None and two is not None else None
    if total * timed.sign <= 0 or not changes:
        return None
    leading_: list[Change] = []
    for change in changes:
        if change.delta_us * timed.sign > 0 and len(leading_) < 3:
            leading_.append(change)
        if sum(each.delta_us for each in leading_) / total >= thresholds.WHOLE:
            break
    share = sum(each.delta_us for each in leading_) / total
    if not leading_ or share < thresholds.MOST or (case.is_kernel and all(own(case, change) for change in leading_)):
        return None
    agrees = measured is not None and 1 / thresholds.AGREES <= total / measured <= thresholds.AGREES
    told = "; ".join(f"{change.name} {change.word} ({brief_time(change.delta_us, '+')} a call)" for change in leading_)
    evidence = [
        Seen(
            text=f"{cell.workload}: profiles differ by {brief_time(total, '+')} a call"
            + (f", the measured medians by {brief_time(measured, '+')}" if measured is not None else "")
            + f"; these make {min(share, 1):.0%} of it",
            record=path,
        ),
        *ways_seen(case, cell),
    ]
    grade = (
        DECISIVE if agrees and share >= thresholds.WHOLE and timed.around.alike < max(1, timed.around.total) else STRONG
    )
    cause = timed.make(
        LATENCY_OPERATOR,
        grade,
        f"{case.subject} is {timed.extent}: {told}.",
        evidence,
        [timed.machine_ruled_out],
        [profile_figure(cell, changes, path)],
        gist=("profile", told),
        command=case.explain(timed.cells),
        # The same operators, only slower, may be slowed by whatever else moved.
        measured=not all(change.alike for change in leading_),
    )
    also = _backend_chosen(timed, cell)
    return cause if also is None else told_together(cause, also)


def _backend_chosen(timed: Timed, cell: Cell) -> Cause | None:
    found = another_backend(timed.case, cell)
    if found is None:
        return None
    return timed.make(
        DEFAULT_BACKEND_MOVED,
        STRONG,
        f"{timed.case.subject} leaves the choice to PyTorch: it takes {found.before} in the baseline, and "
        f"{found.here} here.",
        [Seen(text=f"by its profiles: {found.text}", record=found.record)],
        gist=("default", found.before, found.here),
    )


def launch_overhead(timed: Timed) -> Cause | None:
    """Time that went into a call, and not into its work."""
    on_device = _on_gpu if timed.case.device == "cuda" else _on_cpu
    return _many_small_calls(timed) or on_device(timed)


def _many_small_calls(timed: Timed) -> Cause | None:
    """The same work cut into many more calls, each of which does less: the time is that of calling."""
    found = profiled(timed)
    if found is None:
        return None
    cell, changes, path = found
    calls = [sum(change.calls[side] for change in changes) for side in (0, 1)]
    times = [sum((change.before_us, change.after_us)[side] or 0.0 for change in changes) for side in (0, 1)]
    few, many = (0, 1) if timed.sign > 0 else (1, 0)
    if not calls[few] or calls[many] < thresholds.MANY_CALLS * calls[few] or times[many] <= times[few]:
        return None
    if times[many] / calls[many] > thresholds.SHORTER * times[few] / calls[few]:
        return None
    case = timed.case
    one, two = (time / count for time, count in zip(times, calls, strict=True))
    each = f"an operator takes {brief_time(one)} in the baseline, {brief_time(two)} here"
    return timed.make(
        LATENCY_LAUNCH_OVERHEAD,
        STRONG,
        f"{case.subject} is {timed.extent}: it runs {calls[1]:.0f} operators a call here and {calls[0]:.0f} in the "
        "baseline, each of them shorter. The time is that of calling them.",
        [Seen(text=f"{cell.workload}: {each}", record=path), *ways_seen(case, cell)],
        [
            Ruled(rival="one operator's own work", how="each call takes less than before, not more", record=path),
            timed.machine_ruled_out,
        ],
        [profile_figure(cell, changes, path)],
        command=case.explain(timed.cells),
        measured=True,
    )


def _on_gpu(timed: Timed) -> Cause | None:
    """Replays of a graph hold no launches: where they stand still and single calls moved, the call did."""
    cells = [cell for cell in timed.cells if cell.row.hot is not None and _still(cell.row.hot, cell.row.latency)]
    if timed.mode != model.COLD or not cells or len(cells) < len(timed.cells):
        return None
    enqueued = [(cell, *_enqueue(cell.row.latency)) for cell in cells]
    told = [
        Seen(
            text=f"{cell.workload}: the host enqueues a call in {brief_time(one)} in the baseline, "
            f"{brief_time(two)} here",
            record=cell.row.latency.this.record,
        )
        for cell, one, two, _ in enqueued
        if one is not None and two is not None
    ]
    explains = [share for *_, share in enqueued if share is not None]
    enough = (
        bool(explains) and thresholds.MOST <= statistics.median(explains) <= 1 / thresholds.MOST
    )  # more of it than moved explains nothing
    case = timed.case
    return timed.make(
        LATENCY_LAUNCH_OVERHEAD,
        DECISIVE if enough else SUGGESTIVE,
        f"{case.subject} is {timed.extent}, and the device's own work did not move: the time went into "
        + ("the host's part of a call." if enough else "what stands around a launch, or a cold cache."),
        told[:4],
        [
            Ruled(
                rival="the device's work",
                how="replays of a CUDA graph, which hold no launch, take "
                + listed(
                    f"{cell.row.hot.ratio:.3f}\N{MULTIPLICATION SIGN}"
                    for cell in cells
                    if cell.row.hot and cell.row.hot.ratio
                ),
                record=cells[0].row.latency.this.record,
            )
        ],
        gist=("overhead", case.subject),
        measured=enough,
    )


def _still(hot: Latency, cold: Latency) -> bool:
    if hot.ratio is None or cold.ratio is None or hot.verdict in CALLED:
        return False
    return abs(math.log(hot.ratio)) < thresholds.STILL * abs(math.log(cold.ratio))


def _enqueue(latency: Latency) -> tuple[float | None, float | None, float | None]:
    """The host's time to enqueue a call on both sides, and the share of the change that it makes."""
    one, two = latency.baseline.gpu, latency.this.gpu
    before, after = (side.enqueue_us if side is not None else None for side in (one, two))
    if before is None or after is None or latency.baseline.median_us is None or latency.this.median_us is None:
        return before, after, None
    change = latency.this.median_us - latency.baseline.median_us
    return before, after, (after - before) / change if change else None


def _on_cpu(timed: Timed) -> Cause | None:
    """About the same microseconds more for small problems and large: a call's own cost. Work would grow with them."""
    sized = []
    for cell in timed.case.cells:
        one, two = (side.median_us for side in (cell.row.latency.baseline, cell.row.latency.this))
        if one is not None and two is not None:
            sized.append((one, two - one, cell))
    sized.sort(key=lambda each: each[0])
    if not sized or sized[0][2] not in timed.cells:
        return None
    small_us, more_us, _ = sized[0]
    large = [(size, delta) for size, delta, _ in sized if size >= thresholds.LARGER * small_us]
    constant = all(
        abs(delta - more_us) <= max(thresholds.CONSTANT * abs(more_us), thresholds.NOISE * size)
        for size, delta, _ in sized
    )
    grows = [delta / size > thresholds.GROWS * more_us / small_us for size, delta in large]
    if timed.sign < 0:
        grows = [delta / size < thresholds.GROWS * more_us / small_us for size, delta in large]
    if not large or not constant or any(grows):
        return None
    case = timed.case
    text = (
        f"the change is {brief_time(more_us, '+')} of {brief_time(small_us)}, and {brief_time(large[-1][1], '+')} of "
        f"{brief_time(large[-1][0])}"
    )
    return timed.make(
        LATENCY_LAUNCH_OVERHEAD,
        STRONG if timed.around.steady else SUGGESTIVE,
        f"{case.subject} is {timed.extent} on small problems, and as fast as before on large ones, give or take the "
        f"same time: a call costs {'more' if timed.sign > 0 else 'less'}, its work does not.",
        [Seen(text=text, record=timed.latency(timed.cells[0]).this.record)],
        [Ruled(rival="the work itself", how="it would grow with the problem"), timed.machine_ruled_out],
        gist=("overhead", case.subject),
    )
