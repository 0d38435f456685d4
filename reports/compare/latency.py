"""Latency of one target in one environment, and its verdict against the same in the baseline. Pure.

References are timed in every kernel's launch. Rows of one launch are not independent, so pooling them would count one
launch's luck several times: a reference's times come from the first kernel, in the plan's order, whose launches have
them on both sides, and the row names it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple

import pandas as pd

from harness.schema.records import LaunchRecord
from harness.stats import decide, effects
from harness.worker import protocol
from reports import model
from reports.compare import statistics
from reports.compare.correctness import FAILED
from reports.compare.rates import ceiling_of, rates
from reports.load.evidence import Evidence
from reports.model import Latency, LatencySide, OnGpu

STOPPED = FAILED | {"wrong"}


class Launch(NamedTuple):
    """One target in one launch. Times are NaN where there are none; `hot_message` says why there are no replays."""

    block: int
    status: str
    message: str
    log_excerpt: str
    median_us: float
    samples: int
    correct: bool | None
    hot_us: float
    hot_samples: int
    hot_message: str
    enqueue_us: float
    sm_mhz: float
    throttled: int
    capped: int = 0

    def time_us(self, mode: str) -> float | None:
        """None where this launch has no time of that kind."""
        value = self.median_us if mode == model.COLD else self.hot_us
        return value if self.status == "ok" and value > 0 else None


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Launches by (environment, kernel, device, workload, target), in block order: plain, for it is asked often."""

    groups: dict[tuple[str, str, str, str, str], list[Launch]]

    def of(self, environment: str, kernel: str, device: str, workload: str, target: str) -> list[Launch]:
        return self.groups.get((environment, kernel, device, workload, target), [])


def group_launches(launches: pd.DataFrame) -> Rows:
    columns = ["environment", "kernel", "device", "workload", "target"]
    groups: dict[tuple[str, str, str, str, str], list[Launch]] = {}
    ordered = launches.sort_values("block", kind="stable")
    keys = zip(*(ordered[column].tolist() for column in columns), strict=True)
    values = zip(*(ordered[column].tolist() for column in Launch._fields), strict=True)
    for key, value in zip(keys, values, strict=True):
        groups.setdefault(key, []).append(Launch._make(value))
    return Rows(groups=groups)


def side(
    evidence: Evidence,
    rows: Rows,
    environment: str,
    kernel: str,
    workload: str,
    device: str,
    target: str,
    wrong_output: bool,
    mode: str = model.COLD,
) -> LatencySide:
    is_kernel = target == protocol.KERNEL
    measured_with = None if is_kernel else kernel
    found = rows.of(environment, kernel, device, workload, target)
    timed = [(row, time_us) for row in found if (time_us := row.time_us(mode)) is not None]
    launched = evidence.launch_records.get((environment, kernel, device), [])
    failed = len(found) - len(timed) + sum(not record.timings for record in launched)
    if not timed:
        status, message, log = _without(evidence, found, launched, environment, kernel, device, mode)
        return LatencySide(
            environment=environment,
            status=status,
            message=message,
            log_excerpt=log,
            measured_with=measured_with,
            failed_launches=failed,
            gpu=_on_gpu(found) if device == "cuda" else None,
        )
    medians = [time_us for _, time_us in timed]
    middle = median(medians)
    interval = statistics.median_interval(medians, evidence.confidence)
    return LatencySide(
        environment=environment,
        status="ok",
        message=next((row.message for row, _ in timed if row.correct is False), ""),
        record=evidence.launches_pointer(environment, kernel, device),
        measured_with=measured_with,
        blocks=[row.block for row, _ in timed],
        medians_us=medians,
        median_us=middle,
        low_us=interval[0] if interval else None,
        high_us=interval[1] if interval else None,
        samples=sum(row.samples if mode == model.COLD else row.hot_samples for row, _ in timed),
        rates=rates(evidence.workload(workload), *ceiling_of(evidence, environment, kernel, device), middle),
        gpu=_on_gpu(found) if device == "cuda" else None,
        wrong_output=wrong_output or any(row.correct is False for row, _ in timed),
        failed_launches=failed,
    )


def _without(
    evidence: Evidence,
    found: list[Launch],
    launched: list[LaunchRecord],
    environment: str,
    kernel: str,
    device: str,
    mode: str,
) -> tuple[str, str, str]:
    """Status, message and log of a target without times."""
    if mode == model.HOT and any(row.status == "ok" for row in found):
        reason = next((row.hot_message for row in found if row.hot_message), "")
        return "not_run", reason or "its launches hold no replays of a CUDA graph", ""
    blocked = evidence.blocked(environment, kernel, device)
    if found:
        return found[0].status, found[0].message, found[0].log_excerpt
    if blocked is not None:
        return blocked.status, blocked.message, blocked.log_excerpt
    if launched and launched[0].status != "ok":
        return launched[0].status, launched[0].message, launched[0].log_excerpt
    return "not_run", "the run holds no launch of it", ""


def _on_gpu(found: list[Launch]) -> OnGpu:
    enqueues = [row.enqueue_us for row in found if row.enqueue_us > 0]
    clocks = [row.sm_mhz for row in found if row.sm_mhz > 0]
    return OnGpu(
        enqueue_us=median(enqueues) if enqueues else None,
        sm_mhz=median(clocks) if clocks else None,
        throttled_samples=sum(row.throttled for row in found),
        throttled_launches=sum(row.throttled > 0 for row in found),
        capped_samples=sum(row.capped for row in found),
        capped_launches=sum(row.capped > 0 for row in found),
    )


def shared_blocks(base: LatencySide, this: LatencySide) -> tuple[list[float], list[float]]:
    """Medians of the blocks that both have: environments are compared only within a block."""
    left, right = (dict(zip(side.blocks, side.medians_us, strict=True)) for side in (base, this))
    both = sorted(left.keys() & right.keys())
    return [left[block] for block in both], [right[block] for block in both]


def without_times(base: LatencySide, this: LatencySide, min_effect: float) -> Latency:
    """The verdict where one side or both have no times."""
    said = this.message or this.status.replace("_", " ")
    if this.status in STOPPED:
        also = "; the baseline has no times either" if base.status in STOPPED else ""
        word, why = model.BROKEN, f"{this.status.replace('_', ' ')}: {said}{also}"
    elif this.status == "unsupported" and base.status == "unsupported":
        word, why = model.UNSUPPORTED, f"refused in both: {said}"
    elif this.status == "unsupported" and base.status == "ok":
        word, why = model.NO_LONGER_SUPPORTED, f"refused here: {said}"
    elif this.status == "ok" and base.status == "unsupported":
        word, why = model.NEWLY_SUPPORTED, "refused in the baseline; it has times here"
    elif this.status == "ok":
        word, why = model.UNDECIDED, f"the baseline has no times: {base.message or base.status.replace('_', ' ')}"
    else:
        word, why = model.UNDECIDED, f"no times: {said}"
    return Latency(verdict=word, why=why, baseline=base, this=this, min_effect=min_effect)


WORDS = {
    decide.SLOWER: model.REGRESSED,
    decide.FASTER: model.IMPROVED,
    decide.SAME: model.PASS,
    decide.SLIGHTLY_SLOWER: model.ABOUT,
    decide.SLIGHTLY_FASTER: model.ABOUT,
    decide.UNDECIDED: model.UNDECIDED,
}


def decide_all(
    pairs: list[tuple[LatencySide, LatencySide, float]],
    confidence: float,
    rate: float,
    *,
    looks: int = 1,
    not_comparable: str = "",
) -> list[Latency]:
    """Verdicts of all rows of a report together: the false-discovery rate is theirs in common. `looks` is at how many
    numbers of launches it could be asked whether they are enough.

    `not_comparable` is the reason why times are shown and decide nothing, as where an environment was timed alone.
    """
    results: dict[int, Latency] = {}
    medians = {}
    for index, (base, this, min_effect) in enumerate(pairs):
        if not_comparable and this.status == "ok":
            results[index] = Latency(
                verdict=model.UNDECIDED, baseline=base, this=this, min_effect=min_effect, why=not_comparable
            )
        elif base.status != "ok" or this.status != "ok":
            results[index] = without_times(base, this, min_effect)
        else:
            medians[index] = shared_blocks(base, this)
            if not medians[index][0]:
                results[index] = Latency(
                    verdict=model.UNDECIDED,
                    baseline=base,
                    this=this,
                    min_effect=min_effect,
                    why="no block holds launches of both environments",
                )
    rows = [index for index in medians if index not in results]
    rule = decide.Rule(confidence=confidence, rate=rate, rows=len(rows), looks=looks)
    estimates = effects.compare_launches([medians[row] for row in rows], confidence)
    q_values = decide.adjust([estimate.p_value for estimate in estimates], looks)
    for index, estimate, q_value in zip(rows, estimates, q_values, strict=True):
        results[index] = _decided(pairs[index], estimate, q_value, rule)
    return [results[index] for index in range(len(pairs))]


def _decided(
    pair: tuple[LatencySide, LatencySide, float], estimate: effects.Estimate, q_value: float | None, rule: decide.Rule
) -> Latency:
    base, this, min_effect = pair
    outcome = decide.decide(estimate, q_value, min_effect, rule.rate)
    latency = Latency(
        verdict=WORDS[outcome],
        why="",
        baseline=base,
        this=this,
        min_effect=min_effect,
        ratio=estimate.ratio,
        low=estimate.low,
        high=estimate.high,
        p_value=estimate.p_value,
        q_value=q_value,
        spread=estimate.spread,
        smallest_effect=decide.smallest_effect(estimate, rule, min_effect),
        launches_needed=(
            decide.launches_to_decide(estimate, rule, min_effect) if outcome == decide.UNDECIDED else None
        ),
        estimate=estimate,
    )
    return replace(latency, why=_why(latency, outcome, estimate.blocks, rule))


def _why(latency: Latency, outcome: str, blocks: int, rule: decide.Rule) -> str:
    count = f"{blocks} + {blocks} launches"
    if latency.low is None or latency.high is None:
        return f"{count} do not tell how launches spread: it takes 2"
    interval = f"{latency.ratio:.3f}\N{MULTIPLICATION SIGN} [{latency.low:.3f}, {latency.high:.3f}], {count}"
    effect = f"\N{PLUS-MINUS SIGN}{latency.min_effect:.0%}"
    if outcome in (decide.SLOWER, decide.FASTER):
        return f"{outcome}: {interval}, q = {latency.q_value:.2g}"
    if outcome in (decide.SLIGHTLY_SLOWER, decide.SLIGHTLY_FASTER):
        word = decide.SLOWER if outcome == decide.SLIGHTLY_SLOWER else decide.FASTER
        about = f"by about the {latency.min_effect:.0%} that count"
        return f"{word} for sure, q = {latency.q_value:.2g}, {about}: {interval}"
    if outcome == decide.SAME:
        return f"within {effect}: {interval}"
    beyond = latency.low > 1 + latency.min_effect or latency.high < 1 / (1 + latency.min_effect)
    if beyond:
        return (
            f"{interval} lies beyond {effect}, and q = {latency.q_value:.2g} over {rule.rows} rows "
            f"is above {rule.rate:g}"
        )
    return f"{interval} neither lies within {effect} nor beyond it"
