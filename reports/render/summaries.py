"""The report beside the page: summary.json, timings.csv, summary.md for an issue, junit.xml for CI. Pure.

summary.json has its own `schema_version`: it changes when a key of the summary changes, not when a record's does.
"""

from __future__ import annotations

import json
import re
from typing import Any

from reports.compare.rows import SUBJECTS
from reports.model import LatencySide, Verdict
from reports.render.answers import MOST
from reports.render.report import Report, TargetTimes
from reports.render.tables import judged
from reports.render.templating import render_csv, render_markdown, render_xml

SCHEMA_VERSION = 9
RUN_KEYS = (
    "run_id",
    "created_utc",
    "command",
    "mode",
    "quick",
    "executor",
    "launches",
    "order_seed",
    "plan_digest",
    "thresholds",
    "tolerances",
    "bundle",
)
ELEMENTS: dict[str, str] = {verdict: verdict.junit for verdict in Verdict}
SHOWN = 10
COMMENT_LINES = 60
MOST_TIMES = 40
# XML 1.0 has no place for these, not even escaped.
FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def summary(report: Report) -> dict[str, Any]:
    """Every planned cell, and every comparison with its evidence. Ratios above 1 are slower; times are microseconds."""
    run = report.evidence.run
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": report.answers.title,
        "answers": {"kernels": report.answers.kernels, "references": report.answers.references},
        "run": {name: getattr(run, name) for name in RUN_KEYS},
        "gpus": report.cards,
        "baseline": run.baseline,
        "environments": report.versions,
        "confounders": report.confounders,
        "counts": report.counts,
        "causes": [
            {name: getattr(each, name) for name in ("number", "lead", "others", "under", "script")}
            for each in report.explanations
        ],
        "not_bit_repeatable": report.unrepeatable,
        "blind_spots": report.blind_spots,
        "moved": [row.id for row in report.moved],
        "cells": report.cells,
        "comparisons": report.rows,
        "what_ran": report.ran,
        "kernelbench": report.kernelbench,
        "identical_controls": [
            {**vars(each), "outcome": each.outcome.value, "text": each.text} for each in report.identical_controls
        ],
        "environment_differences": [item for item in report.environment_items if not item.same],
        "compiled": [each.summary for each in report.compiled],
        "identical_properties": sum(item.same for item in report.environment_items),
        "builds": report.builds,
        "failures": report.failures,
    }


def render_summary(report: Report) -> str:
    """`vars` of a dataclass is what `dataclasses.asdict` would copy, number by number, at five times the cost."""
    return json.dumps(summary(report), default=_facts_of, allow_nan=False, separators=(",", ":"))


def _facts_of(value: object) -> dict[str, object]:
    """Return the fields of a dataclass, but for the function with which a cause is told of other environments."""
    return {name: each for name, each in vars(value).items() if not callable(each)}


def render_timings(report: Report) -> str:
    """CSV: a line per target, workload and environment, the baseline's included; what was not measured is empty."""
    torch = {version.id: version.torch for version in report.versions}
    lines = (_timing_line(times) for times in report.measured)
    return render_csv(
        {"environment": line["environment"], "torch": torch.get(line["environment"]), **line} for line in lines
    )


def _timing_line(times: TargetTimes) -> dict[str, Any]:
    cold, hot, backward, memory = times.cold, times.hot, times.backward, times.memory
    return {
        "environment": cold.environment,
        **_facts(times.row, "kind", "target", "workload", "device"),
        **_facts(cold, "status", "message"),
        "launches": len(cold.medians_us),
        "wrong_output": cold.wrong_output,
        **_times("cold", cold),
        **_times("hot", hot),
        "no_hot_because": _why_not(hot),
        **{name: value for name, value in _times("backward", backward).items() if name.endswith("_us")},
        "no_backward_because": _why_not(backward),
        "no_share_because": cold.rates.message,
        **_facts(memory, "peak_bytes", "kept_bytes", "reserved_bytes"),
        "no_memory_because": memory.message,
        **_facts(cold.gpu, "enqueue_us", "sm_mhz", "throttled_samples"),
    }


def _facts(of: object, *names: str) -> dict[str, Any]:
    return {name: getattr(of, name, None) for name in names}


def _times(mode: str, side: LatencySide | None) -> dict[str, Any]:
    found = _facts(side, "median_us", "low_us", "high_us")
    found |= _facts(side.rates if side else None, "tflops", "tflops_share", "gbps", "gbps_share")
    return {f"{mode}_{name.removeprefix('median_')}": value for name, value in found.items()}


def _why_not(side: LatencySide | None) -> str:
    return side.message if side is not None and side.median_us is None else ""


def render_summary_text(report: Report) -> str:
    """summary.md. Of times, those of kernels and of `default` alone: an issue is read, not searched."""
    timed = [row for row in report.measured if row.hot and (row.row.kind in SUBJECTS or row.row.target == "default")]
    return render_markdown(
        "summary.md.j2",
        report=report,
        run=report.evidence.run,
        shown=SHOWN,
        most=MOST,
        timed=timed[:MOST_TIMES],
        more_timed=len(report.measured) - len(timed[:MOST_TIMES]),
    )


def render_comment(report: Report) -> str:
    """comment.md, for a pull request: the answers alone, in at most COMMENT_LINES lines."""
    lines = render_markdown("answers.md.j2", report=report, most=MOST).splitlines()
    if len(lines) > COMMENT_LINES:
        lines = [*lines[: COMMENT_LINES - 2], "", "The rest is on the page."]
    return "\n".join(lines) + "\n"


def render_junit(report: Report) -> str:
    """A test case per comparison and aspect: failure where it got worse or is wrong, error where broken, skipped where
    undecided or not supported by either."""
    suites = {}
    for aspect in ("correctness", "latency", *(["memory"] if report.has_memory else [])):
        cases = [(row, judged(row, aspect)) for row in report.rows]
        suites[aspect] = [(row, each, ELEMENTS.get(each.verdict, "")) for row, each in cases]
    return FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", render_xml("junit.xml.j2", suites=suites, by_row=report.by_row))
