"""The page and the summary of a bisection, from its one record. Pure."""

from __future__ import annotations

import shlex
from functools import partial
from typing import Any

from markupsafe import Markup

from harness.schema.bisection_records import BisectionRecord, CellSeen
from harness.search.bisect.answer import seen_text
from reports.render.pictures import ABOUT, CHECK, CROSS, badge, ratio_picture, reach, share_bar
from reports.render.templating import render_html, render_markdown

SHARE_WIDTH = 140  # of a share's bar, in CSS pixels
NOT_TRIED = "not tried"
BADGES = {
    "good": ("pass", CHECK),
    "bad": ("failing", CROSS),
    "neither": ("undecided", ABOUT),
    "undecided": ("undecided", "?"),
}


def release_rows(record: BisectionRecord) -> list[dict[str, Any]]:
    """Every release, those that were skipped or not tried too; `first`: whether it is the first one of a step."""
    tried = {version.version: version for version in record.versions}
    firsts = {step.after for step in record.steps}
    found = []
    for release in record.question.releases:
        seen = tried.get(release.version)
        verdict = seen.verdict if seen else "skipped" if release.skipped else NOT_TRIED
        kind, symbol = BADGES.get(verdict, ("unsupported", "\N{EN DASH}"))
        found.append(
            {
                "version": release.version,
                "found": seen.torch if seen else "",
                "verdict": verdict,
                "badge": badge(kind, verdict, symbol),
                "why": (seen.message if seen and not seen.cells else "") or release.skipped,
                "seen": [(cell, seen_text(cell)) for cell in seen.cells] if seen else [],
                "run": seen.run if seen else "",
                "first": release.version in firsts,
            }
        )
    return found


def picture(widest: float, cell: CellSeen) -> Markup:
    """The smallest share of trials that pass as a bar, or a ratio with its interval."""
    if cell.rates:
        return share_bar(min(rate.passed / rate.trials for rate in cell.rates.values()), SHARE_WIDTH)
    return ratio_picture(cell.ratio, cell.low, cell.high, widest)


def render_page(record: BisectionRecord) -> str:
    bounds = [end for version in record.versions for cell in version.cells for end in (cell.low, cell.high)]
    return render_html("bisection.html.j2", picture=partial(picture, reach(bounds)), **_values(record))


def render_summary_text(record: BisectionRecord) -> str:
    return render_markdown("bisection.md.j2", **_values(record))


def _values(record: BisectionRecord) -> dict[str, object]:
    command = shlex.join(record.question.command)
    return {"record": record, "question": record.question, "rows": release_rows(record), "command": command}
