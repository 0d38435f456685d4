"""Which exit codes a report calls for. Pure."""

from __future__ import annotations

from harness import errors
from reports import model
from reports.model import Comparison
from reports.report import Report


def exit_codes(report: Report, fail_on: frozenset[str] = frozenset(), strict: bool = False) -> list[int]:
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
    if strict and any(model.UNDECIDED in judged[aspect] for aspect in fail_on):
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
