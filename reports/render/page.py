"""index.html: one file, nothing fetched. Pure: a report in, text out.

The first rows of each table are in the page as HTML, so that a small run needs no script. Rows beyond them travel
compressed, already escaped, in chunks that the page's script unpacks when their rows come into view. What it filters
and sorts by is one compact list for each column.
"""

from __future__ import annotations

from typing import Any

from reports import model
from reports.attribute.causes import GRADES, Kind
from reports.compare.factors import crossing
from reports.compare.rows import SUBJECTS, significance
from reports.model import Comparison
from reports.render.answers import MOST, Answers, SubjectSummary
from reports.render.method import method_values
from reports.render.report import Report
from reports.render.subjects import GridCell, State
from reports.render.tables import axis_reach, modes, tables, time_reach
from reports.render.templating import html_templates, inlined, pack, render_html
from reports.text import percent

MEASURED_SHOWN = 240
PICTURES_SHOWN = 24
FOLDED = 6  # rows beyond which a table is folded


def grid_lines(answers: Answers) -> list[tuple[str, SubjectSummary, list[GridCell]]]:
    """The grid's lines: a subject, its answer, and a cell for each version."""
    return [(name, each, cells) for each in answers.kernels for name, cells in each.grid.items()]


def pictured(report: Report) -> list[Comparison]:
    """Kernels' rows with times on both sides, most significant first."""
    rows = [row for row in report.rows if row.kind in SUBJECTS and not row.control and not row.alone]
    timed = [row for row in rows if row.latency.baseline.medians_us and row.latency.this.medians_us]
    return sorted(timed, key=significance)


def drift(report: Report) -> list[dict[str, Any]]:
    """Reference drift: per environment, workload and device, every reference's bits against the baseline's, or where it
    has none against those of the environment before."""
    order = report.evidence.run.environments
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in report.rows:
        if row.kind == "reference" and not row.alone:
            others = ["", *reversed(order[: order.index(row.environment)])]
            pairs = ((crossing(report.evidence, row, row.target, other), other) for other in others)
            pair, against = next((each for each in pairs if each[0]), (None, ""))
            found.setdefault((row.environment, row.workload, row.device), {})[row.target] = {
                "row": row,
                "max_abs": pair.max_abs if pair else None,
                "share": pair.differing_share if pair else None,
                "pair": pair,
                "against": against,
            }
    return [{"place": place, "cells": cells} for place, cells in found.items()]


def render_page(report: Report) -> str:
    macros = (
        html_templates()
        .get_template("rows.html.j2")
        .make_module(
            {
                "modes": modes,
                "time_reach": time_reach(report.rows),
                "memory_reach": axis_reach(bound for row in report.rows for bound in (row.memory.low, row.memory.high)),
                "shapes": report.shapes,
                "names": report.evidence.names,
            }
        )
    )
    content, index = tables(report, macros)
    drifts, drawn = drift(report), pictured(report)
    on_gpus = [times for times in report.measured if times.row.device == "cuda"]  # elsewhere no peaks are measured
    tallies = [counts for _, kinds in report.tallied for _, counts in kinds]
    of_kernels = [each for each in report.explanations if not each.lead.is_reference]
    return render_html(
        "index.html.j2",
        report=report,
        run=report.evidence.run,
        tables=content,
        payload=pack(index),
        **inlined("script", "page.js"),
        grades=GRADES,
        most=MOST,
        grid_lines=grid_lines(report.answers),
        pictured=drawn,
        pictures_shown=PICTURES_SHOWN,
        folded=FOLDED,
        reach=time_reach(drawn),
        cards=[each for each in of_kernels if each.lead.cause != Kind.NOTHING_MOVED],
        open_time=State.OPEN_TIME,
        well=[each for each in of_kernels if each.lead.cause == Kind.NOTHING_MOVED],
        reference_cards=[each for each in report.explanations if each.lead.is_reference],
        devices=len({row.device for row in report.rows}),
        drift=drifts,
        drift_references=list(dict.fromkeys(name for line in drifts for name in line["cells"])),
        confidence=percent(report.evidence.confidence),
        measured=on_gpus[:MEASURED_SHOWN],
        left_over=max(0, len(on_gpus) - MEASURED_SHOWN),
        method=method_values(report),
        environments=report.evidence.run.environments,
        names=report.evidence.names,
        verdicts=[verdict for verdict in model.VERDICTS if any(verdict in counts for counts in tallies)],
        row_environments=list(dict.fromkeys(row.environment for row in report.rows)),
    )
