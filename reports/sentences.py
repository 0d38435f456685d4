"""Sentences over facts. Each is a macro of a template in reports/templates: no code holds prose, and none reads it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from types import FunctionType
from typing import Any

import jinja2

from harness.worker import layouts
from reports import text

TEMPLATES = Path(__file__).parent / "templates"
# Macros of numbers.txt.j2, and every function of `reports.text`, are filters: `percent` as it is called, `time_text` as
# `time`.
NUMBERS = ("error", "column_number", "flop_rate", "samples", "interval", "rates", "shape")
FILTERS: dict[str, Callable[..., Any]] = {
    name.removesuffix("_text"): value for name, value in vars(text).items() if isinstance(value, FunctionType)
}


def make_environment(*folders: Path, **options: Any) -> jinja2.Environment:
    """Return templates of these folders, in which a name that is not given is an error."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        **options,
    )
    made.filters |= FILTERS | {name: partial(sentence, "numbers", name) for name in NUMBERS}
    made.globals |= {"layout_name": layouts.named, "SUM": layouts.SUM}
    return made


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    return make_environment(TEMPLATES)


@lru_cache
def _module(template: str) -> Any:
    return _environment().get_template(f"{template}.txt.j2").module


def sentence(template: str, macro: str, *facts: Any, **named: Any) -> str:
    """Return what a macro says of these facts."""
    return str(getattr(_module(template), macro)(*facts, **named))


def sentences(template: str, macro: str, *facts: Any, **named: Any) -> list[str]:
    """Return what a macro says of these facts, a sentence a line."""
    return [line for line in sentence(template, macro, *facts, **named).splitlines() if line.strip()]
