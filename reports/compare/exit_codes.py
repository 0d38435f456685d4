"""The exit codes that a run's comparisons call for. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness import errors
from harness.stats import decide
from harness.worker.protocol import Fault
from reports import model
from reports.load.evidence import Evidence
from reports.model import Comparison, Correctness, Judged, Latency
from reports.sentences import sentence

DETECT = 0.1  # the slow-down that a gate must be able to see, unless another is given


@dataclass(frozen=True, kw_only=True)
class Unseen:
    """A row whose launches could not have shown the slow-down that a gate asks for. So many `launches` could; None
    where that is unknown."""

    row: Comparison
    timed: Latency
    launches: int | None


def _timed(row: Comparison) -> list[Latency]:
    return [timed for timed in row.timed if timed is row.latency or timed.baseline.medians_us or timed.this.medians_us]


def unseen(evidence: Evidence, rows: Sequence[Comparison], detect: float = DETECT) -> list[Unseen]:
    """Rows that no gate on latency may pass: undecided, and with less than 80% probability of calling a slow-down of
    `detect`, were it the only one on the page. Replays that neither side has are no row."""
    times = [(row, timed) for row in rows if not row.alone for timed in _timed(row)]
    tested = sum(timed.p_value is not None for _, timed in times)
    rule = decide.DecisionRule(
        confidence=evidence.confidence, rate=evidence.false_discovery_rate, rows=tested, looks=evidence.looks
    )
    found = []
    for row, timed in times:
        if timed.verdict in model.OPEN and (timed.smallest_effect is None or timed.smallest_effect > detect):
            known = timed.estimate
            launches = decide.launches_to_see(known, rule, timed.min_effect, detect) if known else None
            found.append(Unseen(row=row, timed=timed, launches=launches))
    return found


def unseen_text(evidence: Evidence, rows: Sequence[Comparison], detect: float = DETECT) -> str:
    """Return what the gate could not have detected, why, and what to do; empty where there is nothing."""
    found = unseen(evidence, rows, detect)
    times = sum(len(_timed(row)) for row in rows if not row.alone)
    hardest = max(found, key=lambda each: (each.launches is None, each.launches or 0), default=None)
    return sentence("caveats", "unseen_times", found, hardest, times, detect)


def _memory_unseen(row: Comparison) -> bool:
    """Return whether a gate on memory could not have seen a change, of a target that ran before."""
    lost = row.memory.verdict == model.NO_DATA and bool(row.latency.baseline.medians_us)
    return not row.alone and (lost or row.memory.verdict == model.UNDECIDED)


def memory_unseen_text(rows: Sequence[Comparison]) -> str:
    """Return the same of memory."""
    return sentence("caveats", "unseen_memory", [row for row in rows if _memory_unseen(row)], len(rows))


def exit_codes(
    evidence: Evidence,
    rows: Sequence[Comparison],
    fail_on: frozenset[str] = frozenset(),
    strict: bool = False,
    detect: float = DETECT,
) -> list[int]:
    """Every code that applies; `harness.errors.exit_code` chooses."""
    compared = [row for row in rows if not row.alone]
    applies = {
        errors.INFRASTRUCTURE: any(record.status == "broken" for record in evidence.environments.values()),
        errors.BUILD_FAILED: any(record.status == "build_failed" for record in evidence.builds.values()),
        errors.CORRECTNESS_REGRESSED: (
            ("correctness" in fail_on and any(map(_correctness_gate, compared)))
            # Less exact but within the rule passes; this is stricter.
            or ("exactness" in fail_on and any(row.correctness.verdict == model.LESS_EXACT for row in compared))
        ),
        errors.LATENCY_REGRESSED: "latency" in fail_on and any(map(_latency_gate, compared)),
        errors.MEMORY_REGRESSED: "memory" in fail_on and any(row.memory.verdict == model.REGRESSED for row in compared),
    }
    judged: dict[str, list[Correctness | Judged]] = {
        "correctness": [row.correctness for row in rows],
        "memory": [row.memory for row in rows],
        "latency": [timed for row in rows for timed in row.timed],
    }
    is_open = any(each.verdict in model.OPEN for aspect in fail_on & judged.keys() for each in judged[aspect])
    is_blind = (
        ("latency" in fail_on and bool(unseen(evidence, rows, detect)))
        or ("memory" in fail_on and any(map(_memory_unseen, compared)))
        or ("correctness" in fail_on and any(map(_unjudged, compared)))
    )
    applies[errors.UNDECIDED] = is_blind or (strict and is_open)
    return [code for code, does_apply in applies.items() if does_apply]


def _unjudged(row: Comparison) -> bool:
    """Return whether kernel-matrix could not measure here what ran before, or the versions compute different things: no
    gate passes what it did not see, or what nothing in the run can judge."""
    judged = row.correctness
    was_skipped = judged.this.fault is not Fault.SUBJECT and judged.baseline.status == "ok"
    return was_skipped or judged.verdict in model.ANOTHER_MEANING


def _correctness_gate(row: Comparison) -> bool:
    return _worse(row.correctness.verdict, row.correctness.baseline.status == "ok")


def _latency_gate(row: Comparison) -> bool:
    """Return whether it got slower; a target that can no longer be timed must not pass."""
    return any(_worse(timed.verdict, bool(timed.baseline.medians_us)) for timed in row.timed)


def _worse(verdict: str, worked_before: bool) -> bool:
    return verdict in model.WORSE and (verdict != model.BROKEN or worked_before)
