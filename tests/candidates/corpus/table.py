"""`python -m tests.candidates.corpus.table FILE...`: the tables of docs/hostile.md, from results of the corpus."""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.candidates.corpus.run import ACCUSED, BREAKS, CAUGHT, NOT_RUN, THROUGH

MOST_WORDS = 110  # characters of a message


def render_tables(rows: list[dict[str, Any]]) -> str:
    """Return Markdown: a table for each family of hostile kernels, and one of the honest."""
    families: dict[str, list[str]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row["family"], row["name"])):
        name = row["family"] if row["hostile"] else "honest, but odd"
        families[name].append(f"| {_cell(row['says'])} | {render_outcome(row)} |")
    head = "| what it does | what became of it |\n|---|---|"
    return "\n\n".join("\n".join([f"## {name.capitalize()}\n", head, *lines]) for name, lines in families.items())


def render_outcome(row: dict[str, Any]) -> str:
    outcome, message = row["outcome"], _cell(row["message"])[:MOST_WORDS].strip()
    words = f"**{outcome.lower()}**" if outcome in (THROUGH, ACCUSED, BREAKS) else outcome
    if message and outcome in (CAUGHT, ACCUSED, BREAKS, NOT_RUN):
        return f"{words}: {message}"
    return words if row["ratio"] is None else f"{words}: {row['ratio']:.2f} times its twin's time"


def _cell(text: str) -> str:
    """Text of a stranger in a cell of Markdown."""
    return " ".join(re.sub(r"[^A-Za-z0-9 .,:;()%+=/'-]", " ", text).split())


if __name__ == "__main__":
    print(render_tables([row for name in sys.argv[1:] for row in json.loads(Path(name).read_text())]))
