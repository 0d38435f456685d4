"""Latency of one target in one environment, and its verdict against the same in the baseline. Pure.

References are timed in every kernel's launch. Rows of one launch are not independent, so pooling them would count one
launch's luck several times: a reference's times come from the first kernel, in the plan's order, whose launches have
them on both sides, and the row names it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median

import pandas as pd

from harness.inside import protocol
from reports import model, statistics
from reports.correctness import FAILED
from reports.evidence import Evidence
from reports.model import Latency, LatencySide

STOPPED = FAILED | {"wrong"}
Launch = tuple[int, str, str, str, float, int, "bool | None"]  # block, status, message, log, median, samples, correct


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Launches by (environment, kernel, device, workload, target), in block order: plain, for it is asked often."""

    groups: dict[tuple[str, str, str, str, str], list[Launch]]

    def of(self, environment: str, kernel: str, device: str, workload: str, target: str) -> list[Launch]:
        return self.groups.get((environment, kernel, device, workload, target), [])


def group_launches(launches: pd.DataFrame) -> Rows:
    columns = ["environment", "kernel", "device", "workload", "target"]
    rest = ["block", "status", "message", "log_excerpt", "median_us", "samples", "correct"]
    groups: dict[tuple[str, str, str, str, str], list[Launch]] = {}
    ordered = launches.sort_values("block", kind="stable")
    keys = zip(*(ordered[column].tolist() for column in columns), strict=True)
    values = zip(*(ordered[column].tolist() for column in rest), strict=True)
    for key, value in zip(keys, values, strict=True):
        groups.setdefault(key, []).append(value)
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
) -> LatencySide:
    is_kernel = target == protocol.KERNEL
    measured_with = None if is_kernel else kernel
    found = rows.of(environment, kernel, device, workload, target)
    good = [row for row in found if row[1] == "ok" and row[4] > 0]
    launched = evidence.launch_records.get((environment, kernel, device), [])
    failed = [row for row in found if row not in good] + [record for record in launched if not record.timings]
    if not good:
        blocked = evidence.blocked(environment, kernel, device)
        status, message, log = "not_run", "the run holds no launch of it", ""
        if found:
            status, message, log = found[0][1], found[0][2], found[0][3]
        elif blocked is not None:
            status, message, log = blocked.status, blocked.message, blocked.log_excerpt
        elif launched and launched[0].status != "ok":
            status, message, log = launched[0].status, launched[0].message, launched[0].log_excerpt
        return LatencySide(
            environment=environment,
            status=status,
            message=message,
            log_excerpt=log,
            measured_with=measured_with,
            failed_launches=len(failed),
        )
    medians = [row[4] for row in good]
    middle = median(medians)
    info = evidence.workload(workload)
    return LatencySide(
        environment=environment,
        status="ok",
        message=next((row[2] for row in good if row[6] is False), ""),
        record=evidence.launches_pointer(environment, kernel, device),
        measured_with=measured_with,
        blocks=[row[0] for row in good],
        medians_us=medians,
        median_us=middle,
        samples=sum(row[5] for row in good),
        tflops=info.flops / middle / 1e6 if info is not None and info.flops else None,
        wrong_output=wrong_output or any(row[6] is False for row in good),
        failed_launches=len(failed),
    )


def shared_blocks(base: LatencySide, this: LatencySide) -> tuple[list[float], list[float]]:
    """Medians of the blocks that both have: environments are compared only within a block."""
    both = set(base.blocks) & set(this.blocks)
    left = [value for block, value in zip(base.blocks, base.medians_us, strict=True) if block in both]
    right = [value for block, value in zip(this.blocks, this.medians_us, strict=True) if block in both]
    return left, right


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


def decide_all(
    pairs: list[tuple[LatencySide, LatencySide, float]], confidence: float, rate: float, *, not_comparable: str = ""
) -> list[Latency]:
    """Verdicts of all rows of a report together: the false-discovery rate is theirs in common.

    `not_comparable` is the reason why times are shown and decide nothing, as where an environment was timed alone.
    """
    results: dict[int, Latency] = {}
    tested: list[tuple[int, statistics.Estimate]] = []
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
    tested = list(zip(rows, statistics.compare_launches([medians[row] for row in rows], confidence), strict=True))
    q_values = statistics.adjust([estimate.p_value for _, estimate in tested])
    for (index, estimate), q_value in zip(tested, q_values, strict=True):
        results[index] = _decided(pairs[index], estimate, q_value, len(rows), confidence, rate)
    return [results[index] for index in range(len(pairs))]


def _decided(
    pair: tuple[LatencySide, LatencySide, float],
    estimate: statistics.Estimate,
    q_value: float | None,
    rows: int,
    confidence: float,
    rate: float,
) -> Latency:
    base, this, min_effect = pair
    outcome = statistics.decide(estimate, q_value, min_effect, rate)
    needed = None
    if outcome == "undecided":
        needed = statistics.launches_needed(estimate, rows, min_effect, rate)
    latency = Latency(
        verdict={"slower": model.REGRESSED, "faster": model.IMPROVED, "same": model.PASS}.get(outcome, outcome),
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
        smallest_effect=statistics.smallest_effect(estimate, rows, min_effect, confidence, rate),
        launches_needed=needed,
    )
    return replace(latency, why=_why(latency, estimate, rows, rate))


def _why(latency: Latency, estimate: statistics.Estimate, rows: int, rate: float) -> str:
    count = f"{estimate.baseline_launches} + {estimate.launches} launches"
    if estimate.low is None or estimate.high is None:
        return f"{count} are too few for an interval: the exact test cannot go below p = {estimate.lowest_p:.2g}"
    interval = f"{estimate.ratio:.3f}\N{MULTIPLICATION SIGN} [{estimate.low:.3f}, {estimate.high:.3f}], {count}"
    effect = f"{latency.min_effect:.0%}"
    if latency.verdict == model.REGRESSED:
        return f"slower: {interval}, q = {latency.q_value:.2g}"
    if latency.verdict == model.IMPROVED:
        return f"faster: {interval}, q = {latency.q_value:.2g}"
    if latency.verdict == model.PASS:
        return f"within \N{PLUS-MINUS SIGN}{effect}: {interval}"
    beyond = estimate.low > 1 + latency.min_effect or estimate.high < 1 / (1 + latency.min_effect)
    if beyond:
        return (
            f"{interval} lies beyond \N{PLUS-MINUS SIGN}{effect}, and q = {latency.q_value:.2g} over {rows} rows "
            f"is above {rate:g}"
        )
    return f"{interval} neither lies within \N{PLUS-MINUS SIGN}{effect} nor beyond it"
