"""A trace's page and its last lines in the terminal, from summary.json alone."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from harness.progress import printable
from harness.trace.outcome import load
from reports.render.pictures import ABOUT, CHECK, CROSS, badge
from reports.render.templating import render_html
from reports.text import words

WIDTH, HEIGHT = 1000, 150  # of the growth's picture
FLOOR = -18.0  # of its axis: log10 of the relative difference
BADGES = {  # verdict to colour and sign
    "nothing_moved": ("pass", CHECK),
    "no_effect": ("pass", CHECK),
    "does_not_repeat": ("undecided", "?"),
    "proven": ("regressed", CROSS),
    "raised": ("regressed", CROSS),
    "not_proven": ("undecided", ABOUT),
    "not_explained": ("undecided", "?"),
}


def terminal(found: Mapping[str, Any]) -> str:
    """The answer first, as in the page."""
    grade = f" [{found['grade']}]" if found["grade"] else ""
    lines = [f"{verdict_text(found)}{grade}: {found['answer']}"]
    lines += [f"  {label + ':':7} {text}" for label, text in found["rest"]]
    lines += [f"note: {note}" for note in found["notes"]]
    return "\n".join(map(printable, [*lines, cost_text(found), *found["extracted"]]))


def verdict_text(found: Mapping[str, Any]) -> str:
    return f"{words(found['verdict'])}{' in this part' if found['part'] else ''}"


def cost_text(found: Mapping[str, Any]) -> str:
    told = [
        f"{version}: {cost['plain_s']:.2f} s without the recorder, {cost['recorded_s']:.2f} s with it "
        f"({cost['recorded_s'] / cost['plain_s']:.1f} times), {cost['operators']:.0f} operators"
        for version, cost in found["cost"].items()
    ]
    return f"cost: {'; '.join(told)}; {found['runs']} runs in all"


def growth_picture(found: Mapping[str, Any]) -> Markup:
    """The relative difference along the program, on a logarithmic axis; equal outputs lie on its floor. The points of
    divergence are marked, and the strip below shows where outputs are equal (dim) and where they differ."""
    points = [(place, float(value)) for place, value in found["growth"]]
    if not points:
        return Markup("")
    last = max(place for place, _ in points) or 1

    def x(place: float) -> float:
        return round(40 + (WIDTH - 50) * place / last, 1)

    def y(value: float) -> float:
        level = FLOOR if value <= 0 else min(2.0, math.log10(value)) if math.isfinite(value) else 2.0
        return round(10 + (HEIGHT - 40) * (2.0 - max(FLOOR, level)) / (2.0 - FLOOR), 1)

    parts = []
    for level in (0, -4, -8, -12, -16):
        at = y(10.0**level)
        parts.append(f'<path class="axis" d="M40 {at}H{WIDTH - 10}"/><text x="36" y="{at + 4}">1e{level}</text>')
    line = "L".join(f"{x(place)} {y(value)}" for place, value in points)
    parts.append(f'<path class="ci" fill="none" d="M{line}"/>')
    for place, value in points:
        parts.append(f'<path class="{"mt" if value else "mb"}" d="M{x(place)} {HEIGHT - 20}v14"/>')
    for place in [cause["bad_index"] for cause in found["causes"] if cause["bad_index"] is not None]:
        parts.append(f'<path class="mt" d="M{x(place)} 6V{HEIGHT - 6}"/>')
    return Markup(
        f'<div class="program"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>relative difference along the '
        f"program; upright lines: where the versions part</title>{''.join(parts)}</svg></div>"
    )


def value_text(value: object) -> str:
    if value is None:
        return "\N{EN DASH}"
    number = float(str(value))
    return "not finite, or other in kind" if not math.isfinite(number) else "equal" if not number else f"{number:.2g}"


def render(folder: Path) -> Path:
    """Write index.html beside summary.json."""
    found = load(folder)
    colour, symbol = BADGES[found["verdict"]]
    page = folder / "index.html"
    page.write_text(
        render_html(
            "trace.html.j2",
            found=found,
            badge=badge(colour, verdict_text(found), symbol),
            picture=growth_picture(found),
            value=value_text,
            cost=cost_text(found),
            command=shlex.join(found["command"]),
            options="".join(f" {shlex.quote(word)}" for word in found["options"]),
            colour=colour,
        ),
        encoding="utf-8",
    )
    return page
