"""Templates: HTML pages that fetch nothing, and Markdown that can be pasted into an issue. Pure.

Every string that came from a record is escaped: by Jinja's autoescape in HTML, by `reports.text.markdown` in Markdown.
The content security policy admits a page's one script and one style by their digests, so that even a missed escape
could not run.
"""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import io
import json
import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

import jinja2
from markupsafe import Markup

from reports import text
from reports.compare.properties import repeat_text
from reports.compare.rows import leading_time
from reports.model import Verdict
from reports.render.explanations import rows_shown
from reports.render.subjects import correctness_word
from reports.sentences import make_environment

TEMPLATES = Path(__file__).parent / "templates"
EXCERPT = 4000


def _tail(excerpt: str, length: int = EXCERPT) -> str:
    """The end says why; an excerpt has no business being longer than a screen."""
    return excerpt if len(excerpt) <= length else f"[...]\n{excerpt[-length:]}"


def _code(value: object) -> Markup:
    """Inline code of Markdown, whatever backticks and bars it holds."""
    flat = " ".join(str(value).split()).replace("|", "\\|")
    fence = "`" * (max((len(run) for run in re.findall("`+", flat)), default=0) + 1)
    return Markup(f"{fence} {flat} {fence}" if "`" in flat else f"`{flat}`")


def _command(value: str) -> Markup:
    """A line of an indented block of Markdown, where nothing needs an escape."""
    return Markup(" ".join(value.split()))


FILTERS = {"repeat": repeat_text, "tail": _tail, "median": median, "code": _code, "command": _command}
SIGNS: dict[str, str] = {verdict: verdict.sign for verdict in Verdict}
SIGNS["not_run"] = "○"
GLOBALS = {
    "signs": SIGNS,
    "log": math.log,
    "line_tags": (Markup('<span class="line">'), Markup("</span>")),
    "leading": leading_time,
    "rows_shown": rows_shown,
    "correctness_word": correctness_word,
}


def _environment(**options: Any) -> jinja2.Environment:
    made = make_environment(TEMPLATES, **options)
    made.filters |= FILTERS
    made.globals |= GLOBALS
    return made


@lru_cache(maxsize=1)
def html_templates() -> jinja2.Environment:
    made = _environment(autoescape=True)
    made.globals["pictures"] = made.get_template("pictures.html.j2").module
    return made


@lru_cache(maxsize=1)
def _markdown_templates() -> jinja2.Environment:
    """Whatever a template prints is escaped, unless it is marked as Markdown already."""
    return _environment(finalize=lambda value: value if isinstance(value, Markup) else text.markdown(value))


@lru_cache(maxsize=1)
def _text_templates() -> jinja2.Environment:
    return _environment().overlay(trim_blocks=False, lstrip_blocks=False)  # white space is collapsed afterwards


def render_html(template: str, **values: Any) -> str:
    return html_templates().get_template(template).render(**values, **inlined("style", "style.css"))


def render_markdown(template: str, **values: Any) -> str:
    written = _markdown_templates().get_template(template).render(**values)
    return re.sub(r"\n{3,}", "\n\n", re.sub(r" +\n", "\n", written)).strip() + "\n"


def render_text(template: str, **values: Any) -> str:
    """Return plain words on one line; whoever prints them escapes them."""
    written = _text_templates().get_template(template).render(**values)
    return re.sub(r" ([.;:])", r"\1", " ".join(written.split()))


def render_xml(template: str, **values: Any) -> str:
    return html_templates().get_template(template).render(**values) + "\n"


def render_csv(rows: Iterable[Mapping[str, object]]) -> str:
    """Columns in the order in which rows first name them; what a row lacks is empty."""
    lines = [{name: _plain(value) for name, value in row.items()} for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, dict.fromkeys(name for line in lines for name in line), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _plain(value: object) -> object:
    """A spreadsheet runs what begins like a formula; some of this text was written by the code under test."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def pack(value: object) -> Markup:
    """JSON, gzip, base64: no character of it can end a script element. mtime 0, so that equal reports are equal."""
    return Markup(base64.b64encode(gzip.compress(json.dumps(value).encode(), 6, mtime=0)).decode())


def csp_hash(code: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()


def inlined(name: str, file: str) -> dict[str, str]:
    """A page's one style or script, and the digest by which its content security policy admits it."""
    code = (TEMPLATES / file).read_text()
    return {name: Markup(code), f"{name}_hash": csp_hash(code)}
