"""The words of causes: one template for the sentence of each, and one that cites all facts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2

from reports import text
from reports.model import Seen

TEMPLATES = Path(__file__).parent / "templates"


def listed(names: Iterable[str], most: int = 3) -> str:
    """Return the first of these names, each once, and how many are left."""
    every = list(dict.fromkeys(names))
    left = len(every) - most
    return ", ".join(every[:most]) + (f" and {left} more" if left > 0 else "")


@lru_cache(maxsize=1)
def _templates() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names = ("apart", "brief_time", "bytes_text", "count_of", "function_name", "ratios_text", "short", "words")
    made.globals |= {name: getattr(text, name) for name in names} | {"listed": listed}
    return made


def sentence(template: str, **facts: Any) -> str:
    """Return a cause's sentence on one line."""
    return " ".join(_templates().get_template(f"{template}.j2").render(**facts).split())


def citations(**facts: Any) -> list[Seen]:
    """Return what templates/evidence.j2 cites, each text once."""
    cited: dict[str, Seen] = {}

    def cite(record: str | None, caller: Callable[[], str]) -> str:
        told = " ".join(caller().split())
        cited.setdefault(told, Seen(text=told, record=record))
        return ""

    _templates().get_template("evidence.j2").render(cite=cite, **facts)
    return list(cited.values())
