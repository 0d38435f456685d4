"""Evidence, rows and reports of made-up runs."""

from __future__ import annotations

from pathlib import Path

from reports.load.evidence import Evidence, load_evidence
from reports.model import Comparison
from reports.render.report import Report
from tests.unit.spec import Spec
from tests.unit.synthetic import write_run


def evidence_of(folder: Path, spec: Spec) -> Evidence:
    return load_evidence(write_run(folder, spec).folder)


def report_of(folder: Path, spec: Spec) -> Report:
    return Report(evidence_of(folder, spec))


def kernel_row(report: Report) -> Comparison:
    return next(row for row in report.rows if row.kind == "kernel")
