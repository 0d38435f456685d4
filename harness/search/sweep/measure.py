"""What a run's records say of the settings in it: times beside the incumbent's, and what they amount to. Pure.

What is minimised where environments disagree: the geometric mean, over every environment, workload and, on a GPU, both
ways to time (cold calls and graph replays), of a setting's time over the incumbent's in the same blocks. Each of them
counts alike, however long its calls take; a gain in one can outweigh a loss in another, which is why a winner is only
confirmed that is faster in each of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean

from harness.config.kernels import Setting
from harness.experiments.admission import Refusal
from harness.schema.records import LaunchRecord, Outcome, Status
from harness.schema.sweep_records import Compared, Mode, Trial
from harness.search.ratio import ratio_of
from harness.stats.medians import time_us
from harness.worker import protocol

LEVEL = 0.05
Place = tuple[str, str, Mode]  # environment, workload, mode
Times = dict[Place, dict[int, float]]  # launch medians, by block


def times_of(launches: Iterable[LaunchRecord], kernel: str) -> Times:
    """A kernel's launch medians. A launch whose output was another than the validated one counts for nothing."""
    found: Times = {}
    modes: tuple[Mode, ...] = ("cold", "hot")
    for launch in (launch for launch in launches if launch.kernel == kernel):
        for timing, mode in itertools.product(launch.timings, modes):
            time = time_us(timing, mode) if timing.target == protocol.KERNEL and timing.correct is not False else None
            if time is not None:
                found.setdefault((launch.environment, timing.workload, mode), {})[launch.index] = time
    return found


def fault(launches: Iterable[LaunchRecord], kernel: str) -> Refusal | None:
    """What went wrong in a kernel's launches, if anything did."""
    for launch in (launch for launch in launches if launch.kernel == kernel):
        for status, message in _faults(launch):
            outcome = Outcome(status=status, message=message, log_excerpt=launch.log_excerpt)
            return Refusal(stage="time", environment=launch.environment, outcome=outcome)
    return None


def _faults(launch: LaunchRecord) -> Iterator[tuple[Status, str]]:
    if launch.status != protocol.OK:
        yield launch.status, launch.message or "its launch failed"
    for timing in (timing for timing in launch.timings if timing.target == protocol.KERNEL):
        if timing.status != protocol.OK:
            yield timing.status, timing.message or "it has no time"
        elif timing.correct is False:
            yield "wrong", timing.message or "its output was not the validated one"


def compare(incumbent: Times, this: Times) -> tuple[list[Compared], str]:
    """Every place where the incumbent has times; or why that cannot be, as words."""
    found = []
    for place, ours in incumbent.items():
        theirs = this.get(place, {})
        blocks = sorted(ours.keys() & theirs.keys())
        environment, workload, mode = place
        if not blocks:
            return [], f"no {mode} time of {workload} in {environment}, where the incumbent has one"
        base, own = [ours[block] for block in blocks], [theirs[block] for block in blocks]
        ratio, low, high = ratio_of(base, own, LEVEL)
        found.append(
            Compared(
                environment=environment,
                workload=workload,
                mode=mode,
                incumbent_us=base,
                this_us=own,
                ratio=ratio,
                low=low,
                high=high,
            )
        )
    return found, ""


def score(compared: Sequence[Compared]) -> float:
    """The geometric mean of the ratios."""
    return math.exp(fmean(math.log(each.ratio) for each in compared))


def trial_of(
    setting: Setting,
    kernel: str,
    incumbent: str,
    launches: Sequence[LaunchRecord],
    refused: Mapping[str, Refusal],
) -> Trial:
    """What one setting came to: rejected before it was timed, without a time, or compared."""
    why = refused.get(kernel) or fault(launches, kernel)
    if why is not None:
        outcome = vars(why.outcome)
        return Trial(setting=setting, kernel=kernel, stage=why.stage, environment=why.environment, **outcome)
    compared, problem = compare(times_of(launches, incumbent), times_of(launches, kernel))
    if problem:
        return Trial(setting=setting, kernel=kernel, stage="time", status="not_run", message=problem)
    return Trial(setting=setting, kernel=kernel, status="ok", compared=compared, score=score(compared))


def by_score(trials: Iterable[Trial]) -> list[Trial]:
    """Those that were timed, the fastest first."""
    timed = [(trial.score, trial) for trial in trials if trial.score is not None]
    return [trial for _, trial in sorted(timed, key=lambda each: each[0])]  # stable: of equals the first


def confirm(trial: Trial) -> tuple[bool, str]:
    """Whether a winner is one: faster than the incumbent everywhere, each whole interval below 1; and why."""
    if trial.score is None:
        return False, f"rejected at {trial.stage} in {trial.environment}: {trial.message}"
    slow = [each for each in trial.compared if each.high is None or not each.high < 1]
    if not slow:
        return True, "the whole interval lies below 1 in every environment"
    said = []
    for each in slow:
        where = f"{each.environment}, {each.workload}, {each.mode}"
        if each.low is None or each.high is None:
            said.append(f"{where}: too few launches for an interval")
        else:
            said.append(f"{where}: {each.ratio:.3f} [{each.low:.3f}, {each.high:.3f}]")
    return False, f"the interval of the ratio is not below 1: {'; '.join(said)}"
