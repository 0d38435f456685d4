"""index.html: one file, nothing fetched. Pure: a report in, text out.

The first rows of each table are in the page as HTML, so that a small run needs no script. Rows beyond them travel
compressed and are unpacked by the page's script when they come into view, filter or permalink. Every string that
came from a record is escaped by Jinja's autoescape before it is compressed; the content security policy admits the
page's one script and one style by their digests, so that even a missed escape could not run.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from harness.schema.run_records import WorkloadInfo
from reports import model
from reports.attribute.causes import GRADES
from reports.compare.control import share_text
from reports.compare.counters import counted
from reports.compare.factors import crossing, crossing_with
from reports.compare.gpus import Ran
from reports.compare.kernelbench import Solution
from reports.compare.moved import leading_time, significance
from reports.model import Comparison
from reports.render import durations, formats
from reports.render.details import facts, modes, times
from reports.render.method import method_items
from reports.render.report import Measured, Report

TEMPLATES = Path(__file__).parent / "templates"
# A table of more rows than this has only its first in the HTML: opening must not wait for what nobody scrolled to.
SERVER_ROWS = 150
FIRST_ROWS = 40
CAUSES_SHOWN, CAUSES_MOST = 12, 60
NEVER_RIGHT_SHOWN = 8
SOLUTIONS_SHOWN = 300
EXCERPT = 4000
CORRECTNESS_COLUMNS = (
    "Target",
    "Workload",
    "Device",
    "Environment",
    "Verdict",
    "Trials within tolerance",
    "Largest error (units)",
    "Agrees with references",
    "Output bits",
)
LATENCY_COLUMNS = (
    "Target",
    "Workload",
    "Device",
    "Environment",
    "Verdict",
    "Ratio to baseline",
    "Launch medians",
    "Median",
    "FLOP/s",
    "Launches",
    "Smallest effect",
)


def _tail(text: str, length: int = EXCERPT) -> str:
    """The end says why; an excerpt has no business being longer than a screen."""
    return text if len(text) <= length else f"[...]\n{text[-length:]}"


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    jinja = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters |= {
        "words": formats.words,
        "time": durations.time_text,
        "rate": formats.rate_text,
        "number": formats.number,
        "flops": formats.flop_rate,
        "rate_interval": formats.rate_interval,
        "percent": formats.percent,
        "change": formats.change_text,
        "forest": formats.forest,
        "tail": _tail,
        "bar": formats.bar,
        "interval": formats.interval_text,
        "speedup": formats.speedup_text,
        "card": formats.card_text,
        "ceilings": formats.ceiling_text,
        "short": formats.short,
        "digits": formats.digits,
    }
    jinja.globals |= {
        "symbols": formats.SYMBOLS,
        "strip": formats.strip,
        "facts": facts,
        "times": times,
        "badge": formats.badge,
        "rate_cell": formats.rate_cell,
        "median_cell": formats.median_cell,
        "wrong_tag": formats.wrong_tag,
        "modes": modes,
        "share_cell": formats.share_cell,
        "line_tags": (Markup('<span class="line">'), Markup("</span>")),
        "leading": leading_time,
        "share_text": share_text,
    }
    return jinja


def _rank(verdict: str) -> int:
    return model.VERDICTS.index(verdict)


def _share(rate: model.Rate | None) -> float | None:
    return rate.share if rate else None


def correctness_keys(row: Comparison) -> list[Any]:
    judged = row.correctness
    agreement = [rate.share for rate in judged.this.agreement.values()]
    return [
        row.target,
        row.workload,
        row.device,
        row.environment,
        _rank(judged.verdict),
        _share(judged.this.rate),
        judged.this.max_units,
        min(agreement, default=None),
        judged.bits.identical / judged.bits.compared if judged.bits.compared else None,
    ]


def latency_keys(row: Comparison) -> list[Any]:
    timed = leading_time(row)[1]
    return [
        row.target,
        row.workload,
        row.device,
        row.environment,
        _rank(timed.verdict),
        timed.ratio,
        timed.spread,
        timed.this.median_us,
        timed.this.rates.tflops,
        len(timed.this.medians_us),
        timed.smallest_effect,
    ]


def _verdict(row: Comparison, table: str) -> str:
    return row.correctness.verdict if table == "correctness" else leading_time(row)[1].verdict


def tables(report: Report) -> dict[str, dict[str, Any]]:
    """Per table: the first rows as HTML, the index of all with the HTML of the others, and what opens below those."""
    macros: Any = environment().get_template("rows.html.j2").module
    rows = sorted(report.rows, key=significance)
    reach = formats.forest_reach([timed for row in rows for timed in row.timed])
    hidden = {
        column
        for column, values in (
            ("Environment", {row.environment for row in rows}),
            ("Device", {row.device for row in rows}),
        )
        if len(values) <= 1
    }
    if all(row.hot for row in rows):
        hidden.add("FLOP/s")  # a section of their own shows rates, beside the ceilings
    shapes = {
        "correctness": (CORRECTNESS_COLUMNS, macros.correctness_row, macros.correctness_detail, correctness_keys, ()),
        "latency": (LATENCY_COLUMNS, macros.latency_row, macros.latency_detail, latency_keys, (reach,)),
    }
    found = {}
    for name, (columns, render, detail, keys, extra) in shapes.items():
        ordered = sorted(rows, key=lambda row: _rank(_verdict(row, name)))
        shown = [column for column in columns if column not in hidden]
        index, body, details = [], [], {}
        first = SERVER_ROWS if len(ordered) <= SERVER_ROWS else FIRST_ROWS
        for position, row in enumerate(ordered):
            told = [each for each in report.by_row.get(row.id, []) if each[1].about == name]
            html = render(row, hidden, *extra), detail(row, len(shown), told)
            item = {
                "id": f"{name}/{row.id}",
                "verdict": _verdict(row, name),
                "environment": row.environment,
                "kind": row.kind,
                "keys": [
                    float(f"{key:.6g}") if isinstance(key, float) else key
                    for column, key in zip(columns, keys(row), strict=True)
                    if column not in hidden
                ],
                "text": " ".join((row.target, row.kind, row.workload, row.device, row.environment)).lower(),
            }
            if position < first:
                body.append(Markup("").join(html))
            else:
                item["html"], details[item["id"]] = html
            index.append(item)
        found[name] = {"columns": shown, "body": body, "index": index, "details": details, "total": len(ordered)}
    return found


def pack(value: object) -> str:
    """JSON, gzip, base64: no character of it can end a script element. mtime 0, so that equal reports are equal."""
    return base64.b64encode(gzip.compress(json.dumps(value).encode(), 6, mtime=0)).decode()


def csp_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def inlined(name: str, file: str) -> dict[str, str]:
    """A page's one style or script, and the digest by which its content security policy admits it."""
    text = (TEMPLATES / file).read_text()
    return {name: Markup(text), f"{name}_hash": csp_hash(text)}


@dataclass(frozen=True, kw_only=True)
class Group:
    """Rows of one kernel that no version gets right, for the same reason: one line of the first screen."""

    why: str
    rows: list[Comparison]


def never_right_groups(report: Report) -> list[Group]:
    """Kernels that no version got right: one line for each target, device and reason."""
    found: dict[tuple[str, ...], Group] = {}
    for row in report.never_right:
        reason = row.correctness.why
        key = (row.target, row.device, row.correctness.verdict, reason)
        found.setdefault(key, Group(why=reason, rows=[])).rows.append(row)
    return list(found.values())


def drift(report: Report) -> list[dict[str, Any]]:
    """Reference drift: per environment, workload and device, every reference's bits against the baseline's, or where it
    has none against those of the environment before."""
    order = report.evidence.run.environments
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in report.rows:
        if row.kind == "reference" and not row.alone:
            pair, against = crossing(report.evidence, row, row.target), ""
            if pair is None and row.environment in order:
                for name in reversed(order[: order.index(row.environment)]):
                    pair = pair or crossing_with(report.evidence, row, name)
                    against = against or (name if pair else "")
            found.setdefault((row.environment, row.workload, row.device), {})[row.target] = {
                "row": row,
                "max_abs": pair.max_abs if pair else None,
                "share": pair.differing_share if pair else None,
                "pair": pair,
                "against": against,
            }
    return [{"place": place, "cells": cells} for place, cells in found.items()]


MEASURED_SHOWN = 240


def measured_groups(report: Report) -> list[tuple[WorkloadInfo | None, list[list[Measured]]]]:
    """Per workload, per target: one entry for each environment. Of GPUs alone: elsewhere no ceilings are measured."""
    rows = [row for row in report.measured if row.device == "cuda"][:MEASURED_SHOWN]
    return [
        (report.evidence.workload(workload), [list(same) for _, same in groupby(group, key=lambda row: row.target)])
        for workload, group in groupby(rows, key=lambda row: row.workload)
    ]


def ran_table(report: Report) -> list[tuple[str, list[list[Ran]]]]:
    """Per reference, per environment: what ran under its name."""
    names = report.evidence.run.environments
    return [
        (target, [[ran for ran in report.ran if (ran.target, ran.environment) == (target, name)] for name in names])
        for target in dict.fromkeys(ran.target for ran in report.ran)
    ]


def default_choices(report: Report, environment: str) -> list[tuple[list[str], list[str], str]]:
    """(operators that PyTorch dispatched `default` to, workloads, why there are none), the same ones together."""
    found: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for ran in report.ran:
        if (ran.environment, ran.target) == (environment, "default"):
            chosen = [name for name in ran.operators if "_scaled_dot_product_" in name] or ran.operators
            found.setdefault((tuple(chosen), ran.message), []).extend(ran.workloads)
    return [(list(operators), workloads, message) for (operators, message), workloads in found.items()]


def solutions_by_problem(report: Report) -> list[tuple[str, list[Solution | None]]]:
    """Per problem its solution in each line of the fast_p table."""
    columns = [{each.problem: each for each in line.solutions} for line in report.kernelbench]
    names = dict.fromkeys(name for column in columns for name in column)
    return [(name, [column.get(name) for column in columns]) for name in names]


def other_conditions(report: Report) -> list[str]:
    """Where the run that is cited was made under others than this one, what it says may not hold here."""
    cited = report.calibration
    if cited is None:
        return []
    here = sorted({card.name for card in report.cards}), sorted({card.driver for card in report.cards})
    there = sorted(set(cited.gpus)), cited.drivers
    found = [
        f"The controls were run on another {what}: {', '.join(one) or 'none'}; this run: {', '.join(two) or 'none'}."
        for what, one, two in zip(("GPU", "driver"), there, here, strict=True)
        if one != two
    ]
    if cited.thresholds != report.evidence.run.thresholds:
        found.append("The controls were judged by other thresholds than this run's.")
    if cited.controls.launches != report.evidence.run.launches:
        found.append(f"A trial is {cited.controls.launches} launches; this run has {report.evidence.run.launches}.")
    return found


def render_page(report: Report) -> str:
    content = tables(report)
    drifts = drift(report)
    return (
        environment()
        .get_template("index.html.j2")
        .render(
            report=report,
            run=report.evidence.run,
            tables=content,
            payload=Markup(pack({name: table["index"] for name, table in content.items()})),
            details=Markup(pack({key: text for table in content.values() for key, text in table["details"].items()})),
            **inlined("style", "style.css"),
            **inlined("script", "page.js"),
            explanations=report.explanations,
            causes_shown=CAUSES_SHOWN,
            causes_most=CAUSES_MOST,
            grades=GRADES,
            never_right=never_right_groups(report),
            never_right_shown=NEVER_RIGHT_SHOWN,
            devices=len({row.device for row in report.rows}),
            drift=drifts,
            drift_references=list(dict.fromkeys(name for line in drifts for name in line["cells"])),
            other_conditions=other_conditions(report),
            confidence=formats.percent(report.evidence.confidence),
            measured=measured_groups(report),
            counted=counted(report.evidence),
            solutions=solutions_by_problem(report),
            solutions_shown=SOLUTIONS_SHOWN,
            ran=ran_table(report),
            defaults={name: default_choices(report, name) for name in report.evidence.run.environments},
            left_over=max(0, sum(row.device == "cuda" for row in report.measured) - MEASURED_SHOWN),
            method=method_items(report),
            environments=report.evidence.run.environments,
            verdicts=model.VERDICTS,
            row_environments=list(dict.fromkeys(row.environment for row in report.rows)),
        )
    )
