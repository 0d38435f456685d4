"""Which exit codes a report calls for. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from harness import errors
from harness.stats import decide
from reports import model
from reports.model import Comparison, Latency
from reports.render.formats import percent, short
from reports.render.report import Report

DETECT = 0.1  # the slow-down that a gate must be able to see, unless another is given
OPEN = (model.UNDECIDED, model.ABOUT)


@dataclass(frozen=True, kw_only=True)
class Unseen:
    """A row in which the launches made could not have shown the slow-down that a gate asks for. `launches` could; None
    where no number is known to."""

    row: Comparison
    timed: Latency
    launches: int | None


def _timed(row: Comparison) -> list[Latency]:
    return [timed for timed in row.timed if timed is row.latency or timed.baseline.medians_us or timed.this.medians_us]


def unseen(report: Report, detect: float = DETECT) -> list[Unseen]:
    """Rows that no gate on latency may pass: not decided, and a slow-down of `detect` would have been called with less
    than 80% probability, were it the only one on the page. Replays that neither side has are no row."""
    evidence = report.evidence
    times = [(row, timed) for row in report.rows if not row.alone for timed in _timed(row)]
    tested = sum(timed.p_value is not None for _, timed in times)
    rule = decide.Rule(
        confidence=evidence.confidence, rate=evidence.false_discovery_rate, rows=tested, looks=evidence.looks
    )
    found = []
    for row, timed in times:
        if timed.verdict in OPEN and (timed.smallest_effect is None or timed.smallest_effect > detect):
            known = timed.estimate
            launches = decide.launches_to_see(known, rule, timed.min_effect, detect) if known else None
            found.append(Unseen(row=row, timed=timed, launches=launches))
    return found


def unseen_text(report: Report, detect: float = DETECT) -> str:
    """What the gate could not have seen, why, and what to do; empty where there is nothing."""
    found = unseen(report, detect)
    if not found:
        return ""
    times = sum(len(_timed(row)) for row in report.rows if not row.alone)
    known = [each.launches for each in found if each.launches is not None]
    hardest = max(found, key=lambda each: (each.launches is None, each.launches or 0))
    can = hardest.timed.smallest_effect
    why = f"it could show {percent(can)} at least" if can is not None else short(hardest.timed.why)
    todo = f"about {max(known)} launches of each environment would" if len(known) == len(found) else ""
    if known and not todo:
        todo = f"in {len(known)} of them about {max(known)} launches of each environment would"
    return (
        f"the gate on latency passes nothing: a slow-down of {percent(detect)} could not have been seen in "
        f"{len(found)} of {times} times; of these the hardest is {hardest.row.id}: {why}"
        + (f"; {todo} (--launches), or ask for less (--detect)" if todo else "")
    )


def exit_codes(
    report: Report, fail_on: frozenset[str] = frozenset(), strict: bool = False, detect: float = DETECT
) -> list[int]:
    """Every code that holds; `harness.errors.exit_code` chooses."""
    evidence, codes = report.evidence, []
    if any(record.status == "broken" for record in evidence.environments.values()):
        codes.append(errors.INFRASTRUCTURE)
    if any(record.status == "build_failed" for record in evidence.builds.values()):
        codes.append(errors.BUILD_FAILED)
    rows = [row for row in report.rows if not row.alone]
    if "correctness" in fail_on and any(_correctness_gate(row) for row in rows):
        codes.append(errors.CORRECTNESS_REGRESSED)
    if "exactness" in fail_on and any(row.correctness.verdict == model.LESS_EXACT for row in rows):
        codes.append(errors.CORRECTNESS_REGRESSED)
    if "latency" in fail_on and any(_latency_gate(row) for row in rows):
        codes.append(errors.LATENCY_REGRESSED)
    judged = {
        "correctness": [row.correctness.verdict for row in report.rows],
        "exactness": [],
        "latency": [timed.verdict for row in report.rows for timed in row.timed],
    }
    blind = "latency" in fail_on and bool(unseen(report, detect))
    if blind or (strict and any(verdict in OPEN for aspect in fail_on for verdict in judged[aspect])):
        codes.append(errors.UNDECIDED)
    return codes


def _correctness_gate(row: Comparison) -> bool:
    """What is less exact and within the rule passes: `--fail-on exactness` asks for more."""
    judged = row.correctness
    if judged.verdict == model.BROKEN:
        return judged.baseline.status == "ok"
    return judged.verdict in (model.REGRESSED, model.NO_LONGER_SUPPORTED)


def _latency_gate(row: Comparison) -> bool:
    """What cannot be timed any more must not pass a gate on time."""
    return any(
        bool(timed.baseline.medians_us)
        if timed.verdict == model.BROKEN
        else timed.verdict in (model.REGRESSED, model.NO_LONGER_SUPPORTED)
        for timed in row.timed
    )
