"""The report for machines: summary.json, timings.csv, summary.md for an issue, junit.xml for CI. Pure.

summary.json has its own `schema_version`: it changes when a key of the summary changes, not when a record's does.
"""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any
from xml.etree import ElementTree

from reports import model
from reports.compare.moved import leading_time
from reports.model import Comparison, LatencySide
from reports.render.explanations import Explanation
from reports.render.formats import (
    card_text,
    change_text,
    interval_text,
    markdown,
    markdown_row,
    percent,
    rate_text,
    words,
)
from reports.render.report import Report

SCHEMA_VERSION = 5
SHOWN = 10
MOST_TIMES = 40
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
            "thresholds": run.thresholds.model_dump(),
            "tolerances": run.tolerances,
            "bundle": run.bundle,
        },
        "gpus": report.cards,
        "gpu_measuring": report.measuring,
        "baseline": run.baseline,
        "environments": report.versions,
        "confounders": report.confounders,
        "counts": {
            "correctness": report.correctness_counts,
            "latency": report.latency_counts,
            "hot_latency": report.hot_counts,
        },
        "causes": [
            {
                "number": each.number,
                "lead": each.lead,
                "others": each.others,
                "under": each.under,
                "script": each.script,
            }
            for each in report.explanations
        ],
        "never_right": [row.id for row in report.never_right],
        "not_bit_repeatable": report.unrepeatable,
        "blind_spots": report.blind_spots,
        "moved": [row.id for row in report.moved],
        "cells": report.cells,
        "comparisons": report.rows,
        "what_ran": report.ran,
        "controls": report.controls,
        "calibration": report.calibration,
        "fast_p": report.fast_p,
        "kernelbench": report.kernelbench,
        "environment_differences": [item for item in report.environment_items if not item.same],
        "identical_properties": sum(item.same for item in report.environment_items),
        "builds": report.builds,
        "failures": report.failures,
    }


def render_summary(report: Report) -> str:
    """`vars` of a dataclass is what `dataclasses.asdict` would copy, number by number, at five times the cost."""
    return json.dumps(summary(report), default=vars, allow_nan=False, separators=(",", ":"))


CSV_COLUMNS = (
    "environment",
    "torch",
    "kind",
    "target",
    "workload",
    "device",
    "status",
    "message",
    "launches",
    "wrong_output",
    "cold_us",
    "cold_low_us",
    "cold_high_us",
    "cold_tflops",
    "cold_tflops_share",
    "cold_gbps",
    "cold_gbps_share",
    "hot_us",
    "hot_low_us",
    "hot_high_us",
    "hot_tflops",
    "hot_tflops_share",
    "hot_gbps",
    "hot_gbps_share",
    "no_hot_because",
    "no_share_because",
    "enqueue_us",
    "sm_mhz",
    "throttled_samples",
)


def _timed(side: LatencySide | None) -> tuple[float | None, ...]:
    if side is None:
        return (None,) * 7
    found = side.rates
    return (side.median_us, side.low_us, side.high_us, found.tflops, found.tflops_share, found.gbps, found.gbps_share)


def _plain(value: object) -> object:
    """A spreadsheet runs what begins like a formula; some of this text was written by the code under test."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def render_csv(report: Report) -> str:
    """One line per target, workload and environment, the baseline's included; what was not measured is empty."""
    torch = {version.id: version.torch for version in report.versions}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row in report.measured:
        cold, hot, gpu = row.cold, row.hot, row.cold.gpu
        writer.writerow(
            map(
                _plain,
                (
                    row.environment,
                    torch.get(row.environment),
                    row.kind,
                    row.target,
                    row.workload,
                    row.device,
                    cold.status,
                    cold.message,
                    len(cold.medians_us),
                    cold.wrong_output,
                    *_timed(cold),
                    *_timed(hot),
                    hot.message if hot is not None and hot.median_us is None else "",
                    cold.rates.message,
                    *((gpu.enqueue_us, gpu.sm_mhz, gpu.throttled_samples) if gpu else (None, None, None)),
                ),
            )
        )
    return text.getvalue()


def _code(text: str) -> str:
    flat = " ".join(text.split()).replace("|", "\\|")
    fence = "`" * (max((len(run) for run in re.findall("`+", flat)), default=0) + 1)
    return f"{fence} {flat} {fence}" if "`" in flat else f"`{flat}`"


def render_markdown(report: Report) -> str:
    lines = [f"**{markdown(report.headline)}**", ""]
    for version in report.versions:
        role = "baseline" if version.baseline else "compared"
        seen = (
            f"PyTorch {version.torch}, CUDA build {version.cuda_build}, Python {version.python}"
            if version.torch
            else f"{version.asked}, not observed: {version.message}"
        )
        lines.append(f"- {role} {_code(version.id)}: {markdown(seen)}")
    lines += [f"- confounder, {_code(item.subject)}: {markdown(item.statement)}" for item in report.confounders[:SHOWN]]
    lines += [f"- GPU: {markdown(card_text(card))}" for card in report.cards]
    lines += [f"- {aspect}: {tally}" for aspect, tally in report.tallies]
    lines += [f"- {markdown(sentence)}" for sentence in report.unrepeatable[:SHOWN]]
    for each in report.explanations[:SHOWN]:
        lines += ["", *_markdown_cause(each)]
    if len(report.explanations) > SHOWN:
        lines += ["", f"{len(report.explanations) - SHOWN} more causes: see index.html."]
    if report.kernelbench:
        lines += ["", *_markdown_kernelbench(report)]
    if report.never_right:
        lines += ["", "### Wrong or broken in every version", ""]
        lines += [
            f"- {markdown(row.target)}, {markdown(row.workload)}, {row.device}: {words(row.correctness.verdict)}, "
            f"{markdown(row.correctness.why)}"
            for row in report.never_right[:SHOWN]
        ]
        left = len(report.never_right) - SHOWN
        lines += [f"- and {left} more: see index.html"] if left > 0 else []
    if report.moved:
        lines += ["", "### What moved", ""]
        lines += ["| target | workload | environment | correctness | latency |", "| --- |" + " --- |" * 4]
        lines += [_markdown_row(row) for row in report.moved[:SHOWN]]
        if len(report.moved) > SHOWN:
            lines += ["", f"{len(report.moved) - SHOWN} more moved: see index.html."]
        lines += ["", "Reproduce the first:", "", "    " + " ".join(report.moved[0].command.split())]
    if report.cards:
        lines += ["", *_markdown_times(report)]
    run = report.evidence.run
    lines += ["", f"Run {_code(run.run_id)}, {run.launches} launches each, made by {_code(' '.join(run.command))}."]
    return "\n".join(lines) + "\n"


def _markdown_kernelbench(report: Report) -> list[str]:
    first = report.kernelbench[0]
    lines = ["### fast_p", "", "| environment | device | problems | " + " | ".join(first.fast) + " |"]
    lines.append("| --- | --- | --- |" + " --- |" * len(first.fast))
    for line in report.kernelbench:
        shares = [
            f"{percent(share)}" + (f" ({line.undecided[p]} undecided)" if line.undecided[p] else "")
            for p, share in line.fast.items()
        ]
        cells = [line.environment, line.device, str(line.problems), *shares]
        lines.append(markdown_row(cells))
    if first.missing:
        how = "counted as not solved" if first.counts_missing else "not counted"
        lines += ["", f"Without a solution: {first.missing}, {how}."]
    return lines


def _markdown_row(row: Comparison) -> str:
    judged, (mode, timed) = row.correctness, leading_time(row)
    rates = f"{rate_text(judged.baseline.rate)} to {rate_text(judged.this.rate)}"
    effect = f" (can see {percent(timed.smallest_effect)})" if timed.smallest_effect is not None else ""
    cells = (
        row.target + (" (reference)" if row.kind == "reference" else ""),
        f"{row.workload}, {row.device}",
        row.environment,
        f"{words(judged.verdict)}, {rates}",
        f"{'hot: ' if mode == model.HOT else ''}{words(timed.verdict)}, {change_text(timed)}{effect}",
    )
    return markdown_row(cells)


def _markdown_cause(told: Explanation) -> list[str]:
    """One cause, whole: what is said, what to check it by, what was ruled out, and how to see it again."""
    lead = told.lead
    subjects = ", ".join(told.subjects)
    lines = [
        f"### {markdown(lead.name[:1].upper() + lead.name[1:])}: {markdown(subjects)} ({lead.grade})",
        "",
        markdown(lead.statement),
        *(f"And {markdown(part.name)} ({part.grade}): {markdown(part.statement)}" for part in lead.parts),
        "",
        f"On {markdown(', '.join(told.workloads[:8]))} ({lead.device}), "
        f"{markdown(', '.join(told.environments))} against {markdown(lead.baseline)}.",
    ]
    for figure in lead.drawn:
        lines += ["", f"{markdown(figure.title)}:", "", "| | " + " | ".join(map(markdown, figure.columns)) + " |"]
        lines.append("| --- |" + " --- |" * len(figure.columns))
        for label, entries in figure.rows:
            lines.append(markdown_row((label, *(entry.text for entry in entries))))
    lines += ["", *(f"- {markdown(seen.text)}" for seen in (*lead.evidence, *lead.added[:4]))]
    lines += [f"- ruled out, {markdown(each.rival)}: {markdown(each.how)}" for each in lead.ruled_out]
    if told.under:
        names = ", ".join(dict.fromkeys(cause.kernel for cause in told.under))
        lines.append(f"- {markdown(names)}: agreement moved with it, the kernel's own outputs did not")
    lines += ["", "Next:", "", "    " + " ".join(lead.next_command.split())]
    if told.script:
        lines += ["", f"Without this project, on each version: {_code(f'python {told.script}')}"]
    return lines


def _markdown_times(report: Report) -> list[str]:
    """Kernels and `default` alone: an issue is read, not searched."""
    timed = [row for row in report.measured if row.hot is not None]
    shown = [row for row in timed if row.kind == "kernel" or row.target == "default"]
    lines = ["| target | workload | environment | cold | hot | of the GPU's ceilings |", "| --- |" + " --- |" * 5]
    for row in shown[:MOST_TIMES]:
        best = row.hot if row.hot is not None and row.hot.median_us is not None else row.cold
        share = f"{percent(best.rates.tflops_share)} FLOP/s, {percent(best.rates.gbps_share)} bytes/s"
        cells = (
            row.target,
            row.workload,
            row.environment,
            interval_text(row.cold),
            interval_text(row.hot),
            share if best.median_us else "",
        )
        lines.append(markdown_row(cells))
    left = len(report.measured) - len(shown[:MOST_TIMES])
    return [*lines, *(["", f"{left} more in timings.csv."] if left else [])]


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
            judged = row.correctness if aspect == "correctness" else leading_time(row)[1]
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
                lines = [cause.statement for _, cause in report.by_row.get(row.id, []) if cause.about == aspect]
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
