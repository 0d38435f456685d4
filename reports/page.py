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
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from reports import formats, model
from reports.factors import crossing
from reports.method import method_items
from reports.model import Comparison, Correctness, Latency
from reports.report import Report, correctness_moved, latency_moved, significance

TEMPLATES = Path(__file__).parent / "templates"
# A table of more rows than this has only its first in the HTML: opening must not wait for what nobody scrolled to.
SERVER_ROWS = 150
FIRST_ROWS = 40
MOVED_SHOWN = 8
NEVER_RIGHT_SHOWN = 8
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


def facts(judged: Correctness) -> list[tuple[str, str, str]]:
    """Label, baseline, here: what both validation records say of one target."""
    sides = (judged.baseline, judged.this)

    def line(label: str, value: Callable[[model.CorrectnessSide], object]) -> tuple[str, str, str]:
        one, two = (str(value(side)) for side in sides)
        return label, one, two

    rule = judged.this.decides or judged.baseline.decides
    found = [
        line("Status", lambda side: formats.words(side.status) + (f": {side.message}" if side.message else "")),
        line(
            f"Trials that pass ({rule})",
            lambda side: f"{formats.rate_text(side.rate)} {formats.rate_interval(side.rate)}",
        ),
        line("Largest absolute error", lambda side: formats.number(side.max_abs)),
        line("Largest error, units of correct rounding", lambda side: formats.number(side.max_units)),
    ]
    for name in dict.fromkeys([*sides[0].agreement, *sides[1].agreement]):
        rate = (judged.this.agreement.get(name) or judged.baseline.agreement[name]).rule
        found.append(
            line(
                f"Agreement with {name} ({rate})",
                lambda side, name=name: (  # type: ignore[misc]
                    f"{formats.rate_text(side.agreement.get(name))} {formats.rate_interval(side.agreement.get(name))}"
                ),
            )
        )
    found += [
        line("Nearer to", lambda side: ", ".join(f"{k} {v}" for k, v in side.nearer_to.items()) or formats.ABSENT),
        line("Operators that ran", lambda side: ", ".join(side.operators) or formats.ABSENT),
        line(
            "Trials: NaN or infinity; other bits on repeat; inputs mutated; left unwritten",
            lambda side: (
                f"{side.nonfinite_trials}; {side.repeats_differ}; {side.inputs_mutated}; {side.unwritten_trials}"
            ),
        ),
    ]
    recipes = dict.fromkeys(recipe.recipe for side in sides for recipe in side.recipes)
    return found + [line(f"Inputs: {name}", lambda side, name=name: _recipe(side, name)) for name in recipes]  # type: ignore[misc]


def _recipe(side: model.CorrectnessSide, name: str) -> str:
    found = next((recipe for recipe in side.recipes if recipe.recipe == name), None)
    if found is None:
        return formats.ABSENT
    rates = [f"{rate.rule} {formats.rate_text(rate)}" for rate in found.rates if rate.against == "truth"]
    parts = [
        ", ".join(rates),
        f"largest {formats.number(found.max_abs)}" if found.max_abs is not None else "",
        found.message,
        f"worst at {found.worst}" if found.worst else "",
    ]
    return "; ".join(part for part in parts if part)


def times(latency: Latency) -> list[tuple[str, str, str]]:
    sides = (latency.baseline, latency.this)
    rows: list[tuple[str, Callable[[model.LatencySide], str]]] = [
        ("Status", lambda s: formats.words(s.status) + (f": {s.message}" if s.message else "")),
        (
            "Median of launch medians",
            lambda s: (
                formats.time_text(s.median_us) + (" (of a wrong output)" if s.wrong_output and s.median_us else "")
            ),
        ),
        ("Launch medians, by block", lambda s: ", ".join(formats.time_text(value) for value in s.medians_us) or "none"),
        ("Launches that failed; samples in all", lambda s: f"{s.failed_launches}; {s.samples}"),
        ("Records", lambda s: s.record or formats.ABSENT),
    ]
    return [(label, value(sides[0]), value(sides[1])) for label, value in rows]


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
        "time": formats.time_text,
        "rate": formats.rate_text,
        "number": formats.number,
        "flops": formats.flop_rate,
        "rate_interval": formats.rate_interval,
        "percent": formats.percent,
        "change": formats.change_text,
        "forest": formats.forest,
        "tail": _tail,
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
    timed = row.latency
    return [
        row.target,
        row.workload,
        row.device,
        row.environment,
        _rank(timed.verdict),
        timed.ratio,
        timed.spread,
        timed.this.median_us,
        timed.this.tflops,
        len(timed.this.medians_us),
        timed.smallest_effect,
    ]


def tables(report: Report) -> dict[str, dict[str, Any]]:
    """Per table: the first rows as HTML, the index of all with the HTML of the others, and what opens below those."""
    macros: Any = environment().get_template("rows.html.j2").module
    rows = sorted(report.rows, key=significance)
    many = len({row.environment for row in rows}) > 1
    reach = formats.forest_reach([row.latency for row in rows])
    shapes = {
        "correctness": (CORRECTNESS_COLUMNS, macros.correctness_row, macros.correctness_detail, correctness_keys, ()),
        "latency": (LATENCY_COLUMNS, macros.latency_row, macros.latency_detail, latency_keys, (reach,)),
    }
    found = {}
    for name, (columns, render, detail, keys, extra) in shapes.items():
        ordered = sorted(rows, key=lambda row: _rank(getattr(row, name).verdict))
        shown = [column for column in columns if many or column != "Environment"]
        index, body, details = [], [], {}
        first = SERVER_ROWS if len(ordered) <= SERVER_ROWS else FIRST_ROWS
        for position, row in enumerate(ordered):
            html = render(row, many, *extra), detail(row, len(shown))
            item = {
                "id": f"{name}/{row.id}",
                "verdict": getattr(row, name).verdict,
                "environment": row.environment,
                "kind": row.kind,
                "keys": [
                    float(f"{key:.6g}") if isinstance(key, float) else key
                    for column, key in zip(columns, keys(row), strict=True)
                    if many or column != "Environment"
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


def moved_aspect(row: Comparison) -> str:
    """Which of the two tables tells why the row stands on the first screen."""
    if correctness_moved(row) or not latency_moved(row):
        return "correctness"
    return "latency"


def why(row: Comparison) -> str:
    """One line for the first screen: the strongest finding about what moved, else the verdict's own reason."""
    aspect = moved_aspect(row)
    found = [finding for finding in row.findings if finding.about == aspect]
    strongest = sorted(
        found,
        key=lambda finding: ("shown", "suspected").index(finding.certainty) if finding.certainty != "undecided" else 2,
    )
    return strongest[0].statement if strongest else str(getattr(row, aspect).why)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Rows of one target that moved alike and for the same reason: one line of the first screen."""

    aspect: str
    why: str
    rows: list[Comparison]


def moved_groups(report: Report) -> list[Group]:
    found: dict[tuple[str, ...], Group] = {}
    for row in report.moved:
        aspect, reason = moved_aspect(row), why(row)
        verdict = getattr(row, aspect).verdict
        key = (row.kind, row.target, row.environment, row.device, aspect, verdict, reason)
        found.setdefault(key, Group(aspect=aspect, why=reason, rows=[])).rows.append(row)
    return list(found.values())


def never_right_groups(report: Report) -> list[Group]:
    """Kernels that no version got right: one line for each target, device and reason."""
    found: dict[tuple[str, ...], Group] = {}
    for row in report.never_right:
        reason = row.correctness.why
        key = (row.target, row.device, row.correctness.verdict, reason)
        found.setdefault(key, Group(aspect="correctness", why=reason, rows=[])).rows.append(row)
    return list(found.values())


def drift(report: Report) -> list[dict[str, Any]]:
    """Reference drift: per environment, workload and device, every reference's bits against the baseline's."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in report.rows:
        if row.kind == "reference" and not row.alone:
            pair = crossing(report.evidence, row, row.target)
            found.setdefault((row.environment, row.workload, row.device), {})[row.target] = {
                "row": row,
                "max_abs": pair.max_abs if pair else None,
            }
    return [{"place": place, "cells": cells} for place, cells in found.items()]


def render_page(report: Report) -> str:
    style = (TEMPLATES / "style.css").read_text()
    script = (TEMPLATES / "page.js").read_text()
    content = tables(report)
    drifts = drift(report)
    groups = moved_groups(report)
    return (
        environment()
        .get_template("index.html.j2")
        .render(
            report=report,
            run=report.evidence.run,
            tables=content,
            payload=Markup(pack({name: table["index"] for name, table in content.items()})),
            details=Markup(pack({key: text for table in content.values() for key, text in table["details"].items()})),
            style=Markup(style),
            script=Markup(script),
            style_hash=csp_hash(style),
            script_hash=csp_hash(script),
            moved=groups[:MOVED_SHOWN],
            moved_left=groups[MOVED_SHOWN:],
            never_right=never_right_groups(report),
            never_right_shown=NEVER_RIGHT_SHOWN,
            drift=drifts,
            drift_references=list(dict.fromkeys(name for line in drifts for name in line["cells"])),
            method=method_items(report),
            environments=report.evidence.run.environments,
            verdicts=model.VERDICTS,
            row_environments=list(dict.fromkeys(row.environment for row in report.rows)),
        )
    )
