"""All files of a run's report."""

from __future__ import annotations

from pathlib import Path

from reports.render.files import write_file
from reports.render.page import render_page
from reports.render.report import Report
from reports.render.reproduce import render_script
from reports.render.summaries import render_csv, render_junit, render_markdown, render_summary


def write_report(report: Report, folder: Path) -> Path:
    """All files, each whole or not at all; index.html last, so that a page never stands before its data."""
    scripts = {each.script: render_script(report.evidence, each) for each in report.explanations if each.script}
    files = {
        **scripts,
        "summary.json": render_summary(report),
        "timings.csv": render_csv(report),
        "summary.md": render_markdown(report),
        "junit.xml": render_junit(report),
        "index.html": render_page(report),
    }
    for stale in folder.glob("reproduce-*.py"):
        if stale.name not in files:
            stale.unlink(missing_ok=True)  # of a report that explained otherwise
    for name, text in files.items():
        write_file(folder / name, text, "give another --out")
    return folder / "index.html"
