"""The rule for time that went into a call, and not into its work. Pure."""

from __future__ import annotations

import math
import statistics

from reports import model
from reports.causes.followed import ways_seen
from reports.causes.making import listed
from reports.causes.model import DECISIVE, LATENCY_LAUNCH_OVERHEAD, STRONG, SUGGESTIVE, Cause, Ruled
from reports.causes.profiles import profile_figure, profiled
from reports.causes.timed import CALLED, MOST, Timed
from reports.durations import brief_time
from reports.model import Latency, Seen

NOISE = 0.05  # a large problem's own spread hides what a call costs
MANY = 3.0  # times as many calls


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
    if not calls[few] or calls[many] < MANY * calls[few] or times[many] <= times[few]:
        return None
    if times[many] / calls[many] > 0.5 * times[few] / calls[few]:
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
        bool(explains) and MOST <= statistics.median(explains) <= 1 / MOST
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
    return abs(math.log(hot.ratio)) < 0.3 * abs(math.log(cold.ratio))


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
    large = [(size, delta) for size, delta, _ in sized if size >= 4 * small_us]
    constant = all(abs(delta - more_us) <= max(1.5 * abs(more_us), NOISE * size) for size, delta, _ in sized)
    grows = [delta / size > 0.5 * more_us / small_us for size, delta in large]
    if timed.sign < 0:
        grows = [delta / size < 0.5 * more_us / small_us for size, delta in large]
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
