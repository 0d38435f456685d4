"""The report beside the page: summary.json, timings.csv, summary.md for an issue, junit.xml for CI. Pure.

summary.json has its own `schema_version`: it changes when a key of the summary changes, not when a record's does.
"""

from __future__ import annotations

import json
import re
from typing import Any
from xml.etree import ElementTree

from reports import model
from reports.compare.rows import SUBJECTS, leading_time
from reports.model import LatencySide, Rates
from reports.render.answers import MOST
from reports.render.report import Report
from reports.render.templating import render_csv, render_markdown
from reports.text import words

SCHEMA_VERSION = 8
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
# What a verdict is to JUnit: the element, and the attribute that counts it.
JUNIT = {
    model.BROKEN: ("error", "errors"),
    **dict.fromkeys((model.REGRESSED, model.NO_LONGER_SUPPORTED, model.FAILING), ("failure", "failures")),
    **dict.fromkeys((model.UNDECIDED, model.UNSUPPORTED, model.NO_DATA), ("skipped", "skipped")),
}
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
        "gpu_measuring": report.measuring,
        "baseline": run.baseline,
        "environments": report.versions,
        "confounders": report.confounders,
        "counts": {
            "correctness": report.correctness_counts,
            "latency": report.latency_counts,
            "hot_latency": report.hot_counts,
            "backward_latency": report.backward_counts,
            "memory": report.memory_counts,
        },
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
        "fast_p": report.fast_p,
        "kernelbench": report.kernelbench,
        "identical_controls": [
            {**vars(each), "outcome": each.outcome.value, "text": each.text} for each in report.identical_controls
        ],
        "environment_differences": [item for item in report.environment_items if not item.same],
        "packages": report.packages,
        "compiled": [each.summary for each in report.compiled],
        "identical_properties": sum(item.same for item in report.environment_items),
        "builds": report.builds,
        "failures": report.failures,
    }


def render_summary(report: Report) -> str:
    """`vars` of a dataclass is what `dataclasses.asdict` would copy, number by number, at five times the cost."""
    return json.dumps(summary(report), default=vars, allow_nan=False, separators=(",", ":"))


def _times(mode: str, side: LatencySide | None) -> dict[str, float | None]:
    found = side.rates if side else Rates()
    return {
        f"{mode}_us": side.median_us if side else None,
        f"{mode}_low_us": side.low_us if side else None,
        f"{mode}_high_us": side.high_us if side else None,
        **{f"{mode}_{name}": getattr(found, name) for name in ("tflops", "tflops_share", "gbps", "gbps_share")},
    }


def _why_not(side: LatencySide | None) -> str:
    return side.message if side is not None and side.median_us is None else ""


def render_timings(report: Report) -> str:
    """CSV: a line per target, workload and environment, the baseline's included; what was not measured is empty."""
    torch = {version.id: version.torch for version in report.versions}
    return render_csv(
        {
            "environment": row.environment,
            "torch": torch.get(row.environment),
            "kind": row.kind,
            "target": row.target,
            "workload": row.workload,
            "device": row.device,
            "status": row.cold.status,
            "message": row.cold.message,
            "launches": len(row.cold.medians_us),
            "wrong_output": row.cold.wrong_output,
            **_times("cold", row.cold),
            **_times("hot", row.hot),
            "no_hot_because": _why_not(row.hot),
            **{name: value for name, value in _times("backward", row.backward).items() if name.endswith("_us")},
            "no_backward_because": _why_not(row.backward),
            "no_share_because": row.cold.rates.message,
            **{name: getattr(row.memory, name) for name in ("peak_bytes", "kept_bytes", "reserved_bytes")},
            "no_memory_because": row.memory.message,
            **{name: getattr(row.cold.gpu, name, None) for name in ("enqueue_us", "sm_mhz", "throttled_samples")},
        }
        for row in report.measured
    )


def render_summary_text(report: Report) -> str:
    """summary.md. Of times, those of kernels and of `default` alone: an issue is read, not searched."""
    timed = [row for row in report.measured if row.hot and (row.kind in SUBJECTS or row.target == "default")]
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


def _xml(text: str) -> str:
    return FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)


def render_junit(report: Report) -> str:
    """A test case per comparison and aspect: failure where it got worse or is wrong, error where broken, skipped where
    undecided or not supported by either."""
    suites = ElementTree.Element("testsuites", name="kernel matrix")
    for aspect in ("correctness", "latency", *(["memory"] if report.has_memory else [])):
        suite = ElementTree.SubElement(suites, "testsuite", name=aspect)
        tally = {"tests": len(report.rows), "failures": 0, "errors": 0, "skipped": 0}
        for row in report.rows:
            judged = leading_time(row)[1] if aspect == "latency" else getattr(row, aspect)
            case = ElementTree.SubElement(
                suite,
                "testcase",
                classname=_xml(f"{row.environment}.{row.kind}.{row.target}.{row.device}"),
                name=_xml(f"{row.workload} {aspect}"),
            )
            if judged.verdict in JUNIT:
                kind, counted = JUNIT[judged.verdict]
                tally[counted] += 1
                found = ElementTree.SubElement(case, kind, message=_xml(f"{words(judged.verdict)}: {judged.why}"))
                lines = [cause.statement for _, cause in report.by_row.get(row.id, []) if cause.about == aspect]
                found.text = _xml("\n".join([*lines, f"reproduce: {row.command}"]))
        for name, count in tally.items():
            suite.set(name, str(count))
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"
