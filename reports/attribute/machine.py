"""Rules for times that moved with the machine: its clock, and who else was busy on it. Pure."""

from __future__ import annotations

import math
import statistics

from reports.attribute import thresholds
from reports.attribute.cases import Case
from reports.attribute.model import DECISIVE, LATENCY_CLOCK_OR_LOAD, STRONG, SUGGESTIVE, Cause, Ruled
from reports.attribute.timed import Timed, clock_ratio
from reports.model import Seen


def clock_or_load(timed: Timed) -> Cause | None:
    """The clock moved with the time, or all targets moved together and the machine was not the same."""
    case = timed.case
    clocks = [clock for cell in timed.cells if (clock := clock_ratio(timed.latency(cell))) is not None]
    log_time = statistics.median(math.log(ratio) for c in timed.cells if (ratio := timed.latency(c).ratio))
    load = _load(case, timed.sign)
    everywhere = timed.around.everywhere
    clock = statistics.median(clocks) if clocks else 1.0
    by_clock = abs(clock - 1) > thresholds.CLOCK_MOVED and math.log(clock) * timed.sign < 0
    if by_clock:
        explained = -math.log(clock) / log_time if log_time else 0.0
        if explained < thresholds.MOST:
            by_clock = False
    # Where another target of the same launches stood, they did not slow everything.
    apart = [] if timed.around.steady else _busier_in_every_launch(case, timed.sign)
    own = _busy_by_itself(case, timed.sign)
    if not by_clock and not everywhere and not apart and not own:
        return None
    evidence = [*own, *apart, *load]
    grade = DECISIVE if by_clock and everywhere else STRONG if by_clock or load or apart or own else SUGGESTIVE
    if by_clock:
        what = "the GPU's clock moved with it"
    elif own:
        what = "threads beside it are busy in each of its slower launches, and in none of the others"
    elif apart:
        what = "other processes are busy in each of its slower launches, and in none of the others"
    else:
        what = "so are kernel and references alike"
    return timed.make(
        LATENCY_CLOCK_OR_LOAD,
        grade,
        f"{case.subject} is {timed.extent}, and {what}: look at the machine, not at one of them.",
        evidence,
        [
            Ruled(rival="one operator", how=f"{timed.around.alike} of {timed.around.total} other targets moved alike")
            if everywhere
            else None
        ],
        gist=("machine", what),
        measured=grade != SUGGESTIVE,
    )


def processors(case: Case) -> int | None:
    told = case.evidence.run.host.get("cores", "")
    return int(told) if told.isdigit() and int(told) else None


def loads(case: Case, environment: str) -> dict[str, list[float]]:
    """What the machine was like in an environment's launches: shares of its processors, and their clock in MHz."""
    found: dict[str, list[float]] = {"busy": [], "steal": [], "clock": [], "own": []}
    for kernel in case.evidence.run.kernels:
        for launch in case.evidence.launch_records.get((environment, kernel.name, case.device), []):
            if launch.idle_processors is not None:
                found["own"].append(launch.idle_processors / (processors(case) or 1))
            if launch.load is not None:
                for name, value in (
                    ("busy", launch.load.busy_share_others),
                    ("steal", launch.load.steal_share),
                    ("clock", launch.load.cpu_mhz),
                ):
                    if value is not None:
                        found[name].append(value)
    return found


def _busier_in_every_launch(case: Case, sign: int) -> list[Seen]:
    """Launches of both environments take turns: who is busy in all of one's and in none of the other's came with it."""
    return _busier(case, sign, "busy", "other processes used")


def _busy_by_itself(case: Case, sign: int) -> list[Seen]:
    """Threads that a launch's own process has beside those that were called: they are busy while nothing is."""
    return _busier(case, sign, "own", "while nothing was called the launch's own process used")


def _busier(case: Case, sign: int, kind: str, who: str) -> list[Seen]:
    base, this = (loads(case, environment)[kind] for environment in (case.baseline, case.environment))
    slower, faster = (this, base) if sign > 0 else (base, this)
    if min(len(slower), len(faster)) < thresholds.FEWEST_LAUNCHES or min(slower) - max(faster) <= thresholds.BUSIER:
        return []
    text = (
        f"{who} {min(base):.0%} to {max(base):.0%} of the machine in each of the baseline's "
        f"{len(base)} launches, {min(this):.0%} to {max(this):.0%} in each of {len(this)} here"
    )
    return [Seen(text=text)]


def _load(case: Case, sign: int) -> list[Seen]:
    """Where the machine was busier, or its clock lower, in the launches of the slower side."""
    one, two = (
        {name: statistics.median(values) for name, values in loads(case, environment).items() if values}
        for environment in (case.baseline, case.environment)
    )
    seen = []
    for name, told in (("busy", "other processes used"), ("steal", "other machines on its host took")):
        if name in one and name in two and (two[name] - one[name]) * sign > thresholds.BUSIER:
            seen.append(
                Seen(text=f"{told} {one[name]:.0%} of the machine in the baseline's launches, {two[name]:.0%} here")
            )
    if "clock" in one and "clock" in two and (two["clock"] / one["clock"] - 1) * sign < -thresholds.CLOCK_MOVED:
        seen.append(
            Seen(
                text=f"the processor ran at {one['clock']:.0f} MHz in the baseline's launches, {two['clock']:.0f} here"
            )
        )
    return seen


def slower_machine(timed: Timed) -> list[Seen]:
    """What says that the slower side's launches had a lower clock, or a busier machine."""
    seen = _load(timed.case, timed.sign)
    clocks = [clock for cell in timed.cells if (clock := clock_ratio(timed.latency(cell))) is not None]
    clock = statistics.median(clocks) if clocks else 1.0
    if abs(clock - 1) > thresholds.CLOCK_MOVED and math.log(clock) * timed.sign < 0:
        seen.append(Seen(text=f"the GPU's clock here is {clock:.2f} times the baseline's"))
    return seen
