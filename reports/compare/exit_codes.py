"""The exit codes that a run's comparisons call for. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness import errors
from harness.stats import decide
from harness.worker.protocol import Fault
from reports import model
from reports.load.evidence import Evidence
from reports.model import Comparison, Latency
from reports.text import ABSENT, effect_text, percent, short

DETECT = 0.1  # the slow-down that a gate must be able to see, unless another is given
OPEN = (model.UNDECIDED, model.ABOUT)


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
        if timed.verdict in OPEN and (timed.smallest_effect is None or timed.smallest_effect > detect):
            known = timed.estimate
            launches = decide.launches_to_see(known, rule, timed.min_effect, detect) if known else None
            found.append(Unseen(row=row, timed=timed, launches=launches))
    return found


def unseen_text(evidence: Evidence, rows: Sequence[Comparison], detect: float = DETECT) -> str:
    """What the gate could not have detected, why, and what to do; empty where there is nothing."""
    found = unseen(evidence, rows, detect)
    if not found:
        return ""
    times = sum(len(_timed(row)) for row in rows if not row.alone)
    known = [each.launches for each in found if each.launches is not None]
    hardest = max(found, key=lambda each: (each.launches is None, each.launches or 0))
    can = hardest.timed.smallest_effect
    why = f"it could only detect {effect_text(can)} or more" if effect_text(can) != ABSENT else short(hardest.timed.why)
    todo = ""
    if known:
        some = "" if len(known) == len(found) else f"for {len(known)} of them "
        enough = f"{some}about {max(known)} launches of each environment would be enough"
        todo = f"; {enough} (--launches), or raise --detect"
    return (
        f"the latency gate cannot pass: a slow-down of {percent(detect)} could not have been detected in "
        f"{len(found)} of {times} timed rows; the hardest is {hardest.row.id}: {why}{todo}"
    )


def _memory_unseen(row: Comparison) -> bool:
    """Whether a gate on memory could not have seen a change, of a target that ran before."""
    lost = row.memory.verdict == model.NO_DATA and bool(row.latency.baseline.medians_us)
    return not row.alone and (lost or row.memory.verdict == model.UNDECIDED)


def memory_unseen_text(rows: Sequence[Comparison]) -> str:
    """As `unseen_text`, of memory."""
    found = [row for row in rows if _memory_unseen(row)]
    if not found:
        return ""
    return (
        f"the memory gate cannot pass: more memory could not have been seen in {len(found)} of {len(rows)} rows; "
        f"the first is {found[0].id}: {short(found[0].memory.why)}"
    )


def exit_codes(
    evidence: Evidence,
    rows: Sequence[Comparison],
    fail_on: frozenset[str] = frozenset(),
    strict: bool = False,
    detect: float = DETECT,
) -> list[int]:
    """Every code that applies; `harness.errors.exit_code` chooses."""
    codes = []
    if any(record.status == "broken" for record in evidence.environments.values()):
        codes.append(errors.INFRASTRUCTURE)
    if any(record.status == "build_failed" for record in evidence.builds.values()):
        codes.append(errors.BUILD_FAILED)
    compared = [row for row in rows if not row.alone]
    if "correctness" in fail_on and any(map(_correctness_gate, compared)):
        codes.append(errors.CORRECTNESS_REGRESSED)
    if "exactness" in fail_on and any(row.correctness.verdict == model.LESS_EXACT for row in compared):
        codes.append(errors.CORRECTNESS_REGRESSED)
    if "latency" in fail_on and any(map(_latency_gate, compared)):
        codes.append(errors.LATENCY_REGRESSED)
    if "memory" in fail_on and any(row.memory.verdict == model.REGRESSED for row in compared):
        codes.append(errors.MEMORY_REGRESSED)
    verdicts = [row.correctness.verdict for row in rows if "correctness" in fail_on]
    verdicts += [row.memory.verdict for row in rows if "memory" in fail_on]
    verdicts += [timed.verdict for row in rows for timed in row.timed if "latency" in fail_on]
    blind = "latency" in fail_on and bool(unseen(evidence, rows, detect))
    blind |= "memory" in fail_on and any(map(_memory_unseen, compared))
    blind |= "correctness" in fail_on and any(_skipped(row) or _means_else(row) for row in compared)
    if blind or (strict and any(verdict in OPEN for verdict in verdicts)):
        codes.append(errors.UNDECIDED)
    return codes


def _skipped(row: Comparison) -> bool:
    """Return whether kernel-matrix could not measure here what ran before: no gate passes what it did not see."""
    judged = row.correctness
    return judged.this.fault is not Fault.SUBJECT and judged.baseline.status == "ok"


def _means_else(row: Comparison) -> bool:
    """Return whether the versions compute different things: no gate passes what nothing in the run can judge."""
    return row.correctness.verdict in model.ANOTHER_MEANING


def _correctness_gate(row: Comparison) -> bool:
    """Less exact but within the rule passes; `--fail-on exactness` is stricter."""
    return _worse(row.correctness.verdict, row.correctness.baseline.status == "ok")


def _latency_gate(row: Comparison) -> bool:
    """A target that can no longer be timed must not pass."""
    return any(_worse(timed.verdict, bool(timed.baseline.medians_us)) for timed in row.timed)


def _worse(verdict: str, worked_before: bool) -> bool:
    return verdict in model.WORSE and (verdict != model.BROKEN or worked_before)
