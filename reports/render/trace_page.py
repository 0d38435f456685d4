"""A trace's page and its last lines in the terminal, from summary.json."""

from __future__ import annotations

import math
import shlex
from pathlib import Path

import jinja2

from harness.progress import printable
from harness.trace.model import LIMIT_UNITS, TraceSummary, load_summary
from reports.render.templating import TEMPLATES, render_html
from reports.text import words

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


def value_text(value: float | None) -> str:
    if value is None:
        return "\N{EN DASH}"
    return "not finite, or other in kind" if not math.isfinite(value) else f"{value:.2g}" if value else "equal"


def render(folder: Path) -> Path:
    """Write index.html beside summary.json."""
    found = load_summary(folder)
    (_, headline), *rows = describe(found)
    html = render_html(
        "trace.html.j2",
        found=found,
        headline=headline,
        rows=rows,
        value=value_text,
        cost=cost_text(found),
        command=shlex.join(found.command),
    )
    page = folder / "index.html"
    page.write_text(html, encoding="utf-8")
    return page
