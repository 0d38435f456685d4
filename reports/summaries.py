"""The report for machines: summary.json, summary.md for an issue, junit.xml for CI. Pure.

summary.json has its own `schema_version`: it changes when a key of the summary changes, not when a record's does.
"""

from __future__ import annotations

import json
import re
from typing import Any
from xml.etree import ElementTree

from reports import model
from reports.formats import change_text, percent, rate_text, words
from reports.model import Comparison
from reports.page import why
from reports.report import Report

SCHEMA_VERSION = 1
SHOWN = 10
# XML 1.0 has no place for these, not even escaped.
FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def summary(report: Report) -> dict[str, Any]:
    """Every planned cell, and every comparison with its evidence. Ratios above 1 are slower; times are microseconds."""
    run = report.evidence.run
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": report.headline,
        "run": {
            "run_id": run.run_id,
            "created_utc": run.created_utc,
            "command": run.command,
            "mode": run.mode,
            "quick": run.quick,
            "executor": run.executor,
            "launches": run.launches,
            "order_seed": run.order_seed,
            "plan_digest": run.plan_digest,
            "thresholds": run.thresholds,
            "tolerances": run.tolerances,
        },
        "baseline": run.baseline,
        "environments": report.versions,
        "confounders": report.confounders,
        "counts": {"correctness": report.correctness_counts, "latency": report.latency_counts},
        "moved": [row.id for row in report.moved],
        "cells": report.cells,
        "comparisons": report.rows,
        "fast_p": report.fast_p,
        "environment_differences": [item for item in report.environment_items if not item.same],
        "identical_properties": sum(item.same for item in report.environment_items),
        "builds": report.builds,
        "failures": report.failures,
    }


def render_summary(report: Report) -> str:
    """`vars` of a dataclass is what `dataclasses.asdict` would copy, number by number, at five times the cost."""
    return json.dumps(summary(report), default=vars, allow_nan=False, separators=(",", ":"))


def _cell(text: str) -> str:
    """Markdown shows a cell's text and nothing else: no markup, no mention, no second column."""
    flat = " ".join(text.split())
    return re.sub(r"([\\`*_{}\[\]<>|#@!~&])", r"\\\1", flat)


def _code(text: str) -> str:
    flat = " ".join(text.split()).replace("|", "\\|")
    fence = "`" * (max((len(run) for run in re.findall("`+", flat)), default=0) + 1)
    return f"{fence} {flat} {fence}" if "`" in flat else f"`{flat}`"


def render_markdown(report: Report) -> str:
    lines = [f"**{_cell(report.headline)}**", ""]
    for version in report.versions:
        role = "baseline" if version.baseline else "compared"
        seen = (
            f"PyTorch {version.torch}, CUDA build {version.cuda_build}, Python {version.python}"
            if version.torch
            else f"{version.asked}, not observed: {version.message}"
        )
        lines.append(f"- {role} {_code(version.id)}: {_cell(seen)}")
    lines += [f"- confounder, {_code(item.subject)}: {_cell(item.statement)}" for item in report.confounders[:SHOWN]]
    for name, counts in (("correctness", report.correctness_counts), ("latency", report.latency_counts)):
        said = ", ".join(f"{count} {words(verdict)}" for verdict, count in counts.items())
        lines.append(f"- {name}: {said or 'none'}")
    if report.moved:
        lines += ["", "| target | workload | environment | correctness | latency | why |", "| --- |" + " --- |" * 5]
        lines += [_markdown_row(row) for row in report.moved[:SHOWN]]
        if len(report.moved) > SHOWN:
            lines += ["", f"{len(report.moved) - SHOWN} more moved: see index.html."]
        lines += ["", "Reproduce the first:", "", "    " + " ".join(report.moved[0].command.split())]
    run = report.evidence.run
    lines += ["", f"Run {_code(run.run_id)}, {run.launches} launches each, made by {_code(' '.join(run.command))}."]
    return "\n".join(lines) + "\n"


def _markdown_row(row: Comparison) -> str:
    judged, timed = row.correctness, row.latency
    rates = f"{rate_text(judged.baseline.rate)} to {rate_text(judged.this.rate)}"
    effect = f" (can see {percent(timed.smallest_effect)})" if timed.smallest_effect is not None else ""
    cells = (
        row.target + (" (reference)" if row.kind == "reference" else ""),
        f"{row.workload}, {row.device}",
        row.environment,
        f"{words(judged.verdict)}, {rates}",
        f"{words(timed.verdict)}, {change_text(timed)}{effect}",
        why(row),
    )
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _xml(text: str) -> str:
    return FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)


def render_junit(report: Report) -> str:
    """A test case per comparison and aspect: failure where it got worse or is wrong, error where broken, skipped where
    undecided or not supported by either."""
    suites = ElementTree.Element("testsuites", name="kernel matrix")
    for aspect in ("correctness", "latency"):
        suite = ElementTree.SubElement(suites, "testsuite", name=aspect)
        tally = {"tests": len(report.rows), "failures": 0, "errors": 0, "skipped": 0}
        for row in report.rows:
            judged = getattr(row, aspect)
            case = ElementTree.SubElement(
                suite,
                "testcase",
                classname=_xml(f"{row.environment}.{row.kind}.{row.target}.{row.device}"),
                name=_xml(f"{row.workload} {aspect}"),
            )
            kind = _junit_kind(judged.verdict)
            if kind:
                tally[{"failure": "failures", "error": "errors", "skipped": "skipped"}[kind]] += 1
                found = ElementTree.SubElement(case, kind, message=_xml(f"{words(judged.verdict)}: {judged.why}"))
                lines = [finding.statement for finding in row.findings if finding.about == aspect]
                found.text = _xml("\n".join([*lines, f"reproduce: {row.command}"]))
        for name, count in tally.items():
            suite.set(name, str(count))
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _junit_kind(verdict: str) -> str:
    if verdict == model.BROKEN:
        return "error"
    if verdict in (model.REGRESSED, model.NO_LONGER_SUPPORTED, model.FAILING):
        return "failure"
    return "skipped" if verdict in (model.UNDECIDED, model.UNSUPPORTED) else ""
