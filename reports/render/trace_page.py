"""A trace's page and its last lines in the terminal, from summary.json."""

from __future__ import annotations

import math
import shlex
from pathlib import Path

import jinja2
from markupsafe import Markup

from harness.progress import printable
from harness.trace.model import LIMIT_UNITS, TraceSummary, Verdict, load_summary
from reports.render.pictures import ABOUT, CHECK, CROSS, badge
from reports.render.templating import TEMPLATES, render_html
from reports.text import words

WIDTH, HEIGHT = 1000, 150  # of the picture
FLOOR, CEILING = -18.0, 2.0  # of its axis: log10 of the relative difference
MOST_POINTS = 400
BADGES = {  # verdict to colour and sign
    Verdict.UNCHANGED: ("pass", CHECK),
    Verdict.NO_EFFECT: ("pass", CHECK),
    Verdict.DOES_NOT_REPEAT: ("undecided", "?"),
    Verdict.PROVEN: ("regressed", CROSS),
    Verdict.RAISED: ("regressed", CROSS),
    Verdict.POSSIBLE: ("undecided", ABOUT),
    Verdict.NOT_EXPLAINED: ("undecided", "?"),
}
SENTENCES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(TEMPLATES), undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
)


def describe(found: TraceSummary) -> list[tuple[str, str]]:
    """Return the answer in sentences: the headline without a label, and then others with theirs."""
    text = SENTENCES.get_template("trace_answer.txt.j2").render(
        found=found, limit=LIMIT_UNITS, amount=amount, infinity=math.inf
    )
    rows = (line.partition("\t") for line in text.splitlines())
    return [(label.strip(), " ".join(sentence.split())) for label, _, sentence in rows if sentence.strip()]


def amount(value: float | None) -> str:
    """Return a relative difference in words."""
    is_measured = value is not None and math.isfinite(value)
    return f"up to {value:.2g} relative" if is_measured else "an amount that cannot be measured"


def render_terminal(found: TraceSummary) -> str:
    """Return the answer first, as on the page."""
    (_, headline), *rows = describe(found)
    lines = [f"{words(found.verdict)}: {headline}", *(f"  {label + ':':7} {text}" for label, text in rows)]
    lines += [f"note: {note}" for note in found.notes]
    return "\n".join(map(printable, [*lines, cost_text(found)]))


def cost_text(found: TraceSummary) -> str:
    costs = [
        f"{version}: {plain:.2f} s without the recorder, {recorded:.2f} s with it ({recorded / plain:.1f} times)"
        for version, (plain, recorded) in found.seconds.items()
    ]
    return f"cost: {'; '.join(costs)}; {found.runs} runs in all"


def growth_picture(found: TraceSummary) -> Markup:
    """Draw the relative difference along the program, on a logarithmic axis; equal outputs lie on its floor. The strip
    below shows where outputs are equal (dim) and where they differ."""
    points = found.growth
    if not points:
        return Markup("")
    step = math.ceil(len(points) / MOST_POINTS)
    points = [max(points[i : i + step], key=lambda point: point[1]) for i in range(0, len(points), step)]
    last = max(index for index, _ in points) or 1

    def x(index: float) -> float:
        return round(40 + (WIDTH - 50) * index / last, 1)

    def y(value: float) -> float:
        level = FLOOR if value <= 0 else math.log10(value) if math.isfinite(value) else CEILING
        level = min(CEILING, max(FLOOR, level))
        return round(10 + (HEIGHT - 40) * (CEILING - level) / (CEILING - FLOOR), 1)

    parts = []
    for level in (0, -4, -8, -12, -16):
        at = y(10.0**level)
        parts.append(f'<path class="axis" d="M40 {at}H{WIDTH - 10}"/><text x="36" y="{at + 4}">1e{level}</text>')
    line = "L".join(f"{x(index)} {y(value)}" for index, value in points)
    parts.append(f'<path class="ci" fill="none" d="M{line}"/>')
    for index, value in points:
        parts.append(f'<path class="{"mt" if value else "mb"}" d="M{x(index)} {HEIGHT - 20}v14"/>')
    for index in [cause.index for cause in found.causes if cause.index is not None]:
        parts.append(f'<path class="mt" d="M{x(index)} 6V{HEIGHT - 6}"/>')
    return Markup(
        f'<div class="program"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>relative difference along the '
        f"program; upright lines: where the versions diverge</title>{''.join(parts)}</svg></div>"
    )


def value_text(value: float | None) -> str:
    if value is None:
        return "\N{EN DASH}"
    return "not finite, or other in kind" if not math.isfinite(value) else f"{value:.2g}" if value else "equal"


def render(folder: Path) -> Path:
    """Write index.html beside summary.json."""
    found = load_summary(folder)
    colour, symbol = BADGES[found.verdict]
    (_, headline), *rows = describe(found)
    html = render_html(
        "trace.html.j2",
        found=found,
        headline=headline,
        rows=rows,
        badge=badge(colour, words(found.verdict), symbol),
        picture=growth_picture(found),
        value=value_text,
        cost=cost_text(found),
        command=shlex.join(found.command),
        colour=colour,
    )
    page = folder / "index.html"
    page.write_text(html, encoding="utf-8")
    return page
