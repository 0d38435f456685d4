"""Latency of one target in one environment, and its verdict against the same in the baseline. Pure.

References are timed in every kernel's launch. Rows of one launch are not independent, so pooling them would count one
launch several times: a reference's times come from the first kernel, in the plan's order, whose launches have
them on both sides, and the row names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from statistics import median
from typing import Any, TypeVar

import numpy as np
from scipy import stats

from harness.schema.records import LaunchRecord, Outcome
from harness.schema.run_records import Cell
from harness.stats import decide, effects
from harness.worker import protocol
from reports import model
from reports.compare.correctness import FAILED
from reports.compare.gpus import ceiling_of, rates
from reports.compare.properties import differs_though_right, is_wrong
from reports.load.evidence import Evidence, unblamed
from reports.load.launches import Launch
from reports.model import CorrectnessSide, Judged, Latency, LatencySide, OnGpu
from reports.text import ratio_interval, words

STOPPED = FAILED | {"wrong"}


def modes(device: str) -> tuple[str, ...]:
    return (model.COLD, model.HOT) if device == "cuda" else (model.COLD,)


@lru_cache(maxsize=256)
def _median_rank(count: int, confidence: float) -> int:
    """k for the interval from the k-th smallest to the k-th largest value; 0 where none is wide enough."""
    below = stats.binom.cdf(np.arange(count), count, 0.5)
    return int(np.searchsorted(below, (1 - confidence) / 2, side="right"))


def median_interval(values: Sequence[float], confidence: float) -> tuple[float, float] | tuple[None, None]:
    """Interval of the median from order statistics, exact for any distribution (David and Nagaraja, "Order
    Statistics", section 7.1): None where too few values support it, at 95% fewer than six."""
    rank = _median_rank(len(values), confidence)
    if not rank:
        return None, None
    ordered = sorted(values)
    return ordered[rank - 1], ordered[-rank]


def side(
    evidence: Evidence, cell: Cell, target: str, mode: str = model.COLD, validated: CorrectnessSide | None = None
) -> LatencySide:
    """`target` is `kernel` or a reference's name; the cell's kernel is the one in whose launches it was timed. Where
    validation saw that it only does not repeat, other bits in a launch are no news."""
    info = evidence.workload(cell.workload)
    if mode == model.BACKWARD:
        target, mode, info = target + protocol.BACKWARD, model.COLD, None  # operations are known of whole steps
    known = (protocol.OTHER_BITS,) if validated and differs_though_right(validated) else ()
    found, launched = evidence.timed(cell, target), evidence.launches_of(cell)
    timed = [(row, time_us) for row in found if (time_us := row.time_us(mode)) is not None]
    shared: dict[str, Any] = {
        "environment": cell.environment,
        "measured_with": None if target == protocol.KERNEL else cell.kernel,
        "failed_launches": len(found) - len(timed) + sum(not record.timings for record in launched),
        "gpu": _on_gpu(found) if cell.device == "cuda" else None,
    }
    if not timed:
        return LatencySide(**shared, **vars(_without(evidence, found, launched, cell, mode)))
    wrong = [row for row, _ in timed if row.correct is False and row.message not in known]
    medians = [time_us for _, time_us in timed]
    middle = median(medians)
    low_us, high_us = median_interval(medians, evidence.confidence)
    return LatencySide(
        status="ok",
        message=next((row.message for row in wrong), ""),
        record=evidence.launches_pointer(cell.environment, cell.kernel, cell.device),
        blocks=[row.block for row, _ in timed],
        medians_us=medians,
        median_us=middle,
        low_us=low_us,
        high_us=high_us,
        samples=sum(row.samples if mode == model.COLD else row.hot_samples for row, _ in timed),
        rates=rates(info, *ceiling_of(evidence, cell), middle),
        wrong_output=bool(wrong) or (validated is not None and is_wrong(validated)),
        **shared,
    )


def _without(evidence: Evidence, found: list[Launch], launched: list[LaunchRecord], cell: Cell, mode: str) -> Outcome:
    """Why a target has no times."""
    if mode == model.HOT and any(row.status == "ok" for row in found):
        reason = next((row.hot_message for row in found if row.hot_message), "")
        return Outcome(status="not_run", message=reason or "its launches recorded no replays of a CUDA graph")
    first: Launch | Outcome | None = found[0] if found else evidence.blocked(cell)
    if first is None and launched and launched[0].status != "ok":
        first = launched[0]
    if first is None:
        return Outcome(status="not_run", message="the run has no launch of it")
    if isinstance(first, Outcome):
        return unblamed(first.ended())
    log, fault = first.log_excerpt, first.fault
    return unblamed(Outcome(status=first.status, message=first.message, log_excerpt=log, fault=fault))


def _on_gpu(found: list[Launch]) -> OnGpu:
    enqueues = [row.enqueue_us for row in found if row.enqueue_us]
    clocks = [row.sm_mhz for row in found if row.sm_mhz]
    return OnGpu(
        enqueue_us=median(enqueues) if enqueues else None,
        sm_mhz=median(clocks) if clocks else None,
        throttled_samples=sum(row.throttled for row in found),
        throttled_launches=sum(row.throttled > 0 for row in found),
        capped_samples=sum(row.capped for row in found),
        capped_launches=sum(row.capped > 0 for row in found),
    )


def shared_blocks(base: LatencySide, this: LatencySide) -> tuple[list[float], list[float]]:
    """Medians of the blocks that both have."""
    left, right = (dict(zip(side.blocks, side.medians_us, strict=True)) for side in (base, this))
    return of_shared_blocks(left, right)


def of_shared_blocks(base: Mapping[int, float], this: Mapping[int, float]) -> tuple[list[float], list[float]]:
    """What both have of the same blocks: environments are compared only within a block."""
    both = sorted(base.keys() & this.keys())
    return [base[block] for block in both], [this[block] for block in both]


def _untested(
    base: LatencySide, this: LatencySide, min_effect: float, names: Mapping[str, str], not_comparable: str
) -> Latency:
    """The verdict where there is nothing to test, and none yet where both have times of the same blocks."""
    message = this.message or words(this.status)
    then, here = names[base.environment], names[this.environment]
    if this.status == "ok" and not_comparable:
        word, why = model.UNDECIDED, not_comparable
    elif this.status == base.status == "ok":
        alike = shared_blocks(base, this)[0]
        word, why = ("", "") if alike else (model.UNDECIDED, "no block has launches of both environments")
    elif this.status in STOPPED:
        also = f"; {then} has no times either" if base.status in STOPPED else ""
        word, why = model.BROKEN, f"{words(this.status)}: {message}{also}"
    elif this.status == "unsupported" and base.status == "unsupported":
        word, why = model.UNSUPPORTED, f"refused in both: {message}"
    elif this.status == "unsupported" and base.status == "ok":
        word, why = model.NO_LONGER_SUPPORTED, f"refused in {here}: {message}"
    elif this.status == "ok" and base.status == "unsupported":
        word, why = model.NEWLY_SUPPORTED, f"refused in {then}; timed in {here}"
    elif this.status == "ok":
        word, why = model.UNDECIDED, f"{then} has no times: {base.message or words(base.status)}"
    else:
        word, why = model.UNDECIDED, f"no times: {message}"
    return Latency(verdict=word, why=why, baseline=base, this=this, min_effect=min_effect)


J = TypeVar("J", bound=Judged)
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
    names: Mapping[str, str],
    confidence: float,
    rate: float,
    *,
    looks: int = 1,
    not_comparable: str = "",
) -> list[Latency]:
    """Verdicts of all rows of a report together: the false-discovery rate is theirs in common. `looks`: at how many
    numbers of launches the run could have stopped. `names`: of environments, for sentences.

    `not_comparable` is the reason why times are shown but decide nothing, as where an environment was timed alone.
    """
    results = [_untested(*pair, names, not_comparable) for pair in pairs]
    tested = [index for index, each in enumerate(results) if not each.verdict]
    blocks = [shared_blocks(results[index].baseline, results[index].this) for index in tested]
    rule = decide.DecisionRule(confidence=confidence, rate=rate, rows=len(tested), looks=looks)
    least = [results[index].min_effect for index in tested]
    for index, decided in zip(tested, decide.decide_rows(blocks, least, confidence, rate, looks), strict=True):
        results[index] = _decided(results[index], decided, rule)
    return results


def tested(untested: J, outcome: str, estimate: effects.Estimate, q_value: float | None) -> J:
    """With what the test found."""
    return replace(
        untested,
        verdict=WORDS[outcome],
        ratio=estimate.ratio,
        low=estimate.low,
        high=estimate.high,
        p_value=estimate.p_value,
        q_value=q_value,
        spread=estimate.spread,
    )


def _decided(untested: Latency, decided: decide.Decided, rule: decide.DecisionRule) -> Latency:
    estimate, q_value, outcome = decided
    min_effect = untested.min_effect
    open_yet = outcome == decide.UNDECIDED
    latency = replace(
        tested(untested, outcome, estimate, q_value),
        smallest_effect=decide.smallest_effect(estimate, rule, min_effect),
        launches_needed=decide.launches_to_decide(estimate, rule, min_effect) if open_yet else None,
        estimate=estimate,
    )
    return replace(latency, why=_why(latency, outcome, estimate.blocks, rule))


def with_gradients(forward: Latency | None, backward: Latency) -> str:
    """What became of both parts of a step: forward: the same time; backward: 1.41x [1.38, 1.44] the time."""
    parts = {"forward": forward, "backward": backward}
    return "; ".join(f"{name}: {_part_text(timed)}" for name, timed in parts.items() if timed is not None)


def _part_text(timed: Latency) -> str:
    if timed.verdict == model.PASS:
        return "the same time"
    if timed.verdict in (model.REGRESSED, model.IMPROVED, model.ABOUT) and timed.ratio is not None:
        return f"{ratio_interval(timed.ratio, timed.low, timed.high, '.2f')} the time"
    return "not timed" if timed.ratio is None else "undecided"


def _why(latency: Latency, outcome: str, blocks: int, rule: decide.DecisionRule) -> str:
    count = f"{blocks} + {blocks} launches"
    if latency.low is None or latency.high is None:
        return f"{count}: at least 2 launches of each are needed to estimate their spread"
    interval = f"{ratio_interval(latency.ratio or 1.0, latency.low, latency.high)}, {count}"
    effect = f"\N{PLUS-MINUS SIGN}{latency.min_effect:.0%}"
    if outcome in (decide.SLOWER, decide.FASTER):
        return f"{outcome}: {interval}, q = {latency.q_value:.2g}"
    if outcome in (decide.SLIGHTLY_SLOWER, decide.SLIGHTLY_FASTER):
        word = decide.SLOWER if outcome == decide.SLIGHTLY_SLOWER else decide.FASTER
        about = f"by about the minimum effect of {latency.min_effect:.0%}"
        return f"significantly {word}, q = {latency.q_value:.2g}, {about}: {interval}"
    if outcome == decide.SAME:
        return f"within {effect}: {interval}"
    beyond = latency.low > 1 + latency.min_effect or latency.high < 1 / (1 + latency.min_effect)
    if beyond:
        return (
            f"beyond {effect}, but q = {latency.q_value:.2g} over {rule.rows} rows is above {rule.rate:g}: {interval}"
        )
    return f"neither within {effect} nor beyond it: {interval}"
