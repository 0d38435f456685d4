"""Verdicts of times and of memory: all rows of a page are decided together. Pure.

One false-discovery rate holds over all times that are shown, and one over all peaks of memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from harness.stats import decide
from harness.stats.peaks import FLOOR_BYTES
from reports import model
from reports.load.evidence import Evidence
from reports.model import Judged, Latency, Memory
from reports.sentences import sentence

J = TypeVar("J", bound=Judged)
VERDICTS = {
    decide.SLOWER: model.REGRESSED,
    decide.FASTER: model.IMPROVED,
    decide.SAME: model.PASS,
    decide.SLIGHTLY_SLOWER: model.ABOUT,
    decide.SLIGHTLY_FASTER: model.ABOUT,
    decide.UNDECIDED: model.UNDECIDED,
}


def explain_not_comparable(evidence: Evidence) -> str:
    """Return why measurements are shown but decide nothing; empty where they decide."""
    return sentence("verdicts", "not_comparable", evidence.run)


def decide_all(evidence: Evidence, rows: Sequence[J]) -> list[J]:
    """Return the rows with a verdict for each that has none yet, which both environments measured in shared blocks."""
    found = list(rows)
    undecided = [index for index, row in enumerate(rows) if not row.verdict]
    confidence, rate, looks = evidence.confidence, evidence.false_discovery_rate, evidence.looks
    rule = decide.DecisionRule(confidence=confidence, rate=rate, rows=len(undecided), looks=looks)
    samples = [rows[index].samples for index in undecided]
    least = [rows[index].min_effect for index in undecided]
    for index, decided in zip(undecided, decide.decide_rows(samples, least, confidence, rate, looks), strict=True):
        found[index] = _with_verdict(rows[index], decided, rule)
    return found


def _with_verdict(row: J, decided: decide.Decided, rule: decide.DecisionRule) -> J:
    estimate, q_value, outcome = decided
    judged = replace(
        row,
        verdict=VERDICTS[outcome],
        ratio=estimate.ratio,
        low=estimate.low,
        high=estimate.high,
        p_value=estimate.p_value,
        q_value=q_value,
        spread=estimate.spread,
    )
    if isinstance(judged, Latency):
        needed = decide.launches_to_decide(estimate, rule, row.min_effect) if outcome == decide.UNDECIDED else None
        smallest = decide.smallest_effect(estimate, rule, row.min_effect)
        judged = replace(judged, estimate=estimate, smallest_effect=smallest, launches_needed=needed)
    floor = FLOOR_BYTES if isinstance(judged, Memory) else None
    return replace(judged, why=sentence("verdicts", "tested", judged, outcome, estimate.blocks, rule, floor))
