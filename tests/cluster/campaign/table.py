"""Rows in, a table out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.faults.random_faults.table import load_rows


def render_table(paths: Sequence[Path]) -> str:
    """Markdown: kind of fault, how many were made with real launches and with scripted ones, how many met nothing, and
    in how many rounds' checks nothing was found that could be their doing. Rows that were made `again`, after what was
    found was mended, are not counted."""
    rows = [row for row in load_rows(paths) if not row.get("again")]
    lines = ["| fault | real | scripted | met nothing | right at first |", "|---|---:|---:|---:|---:|"]
    modes = Counter((row["kind"], row["mode"]) for row in rows)
    missed = Counter(row["kind"] for row in rows if not row["met"])
    right = Counter(row["kind"] for row in rows if row["outcome"] == "ok")
    for kind in sorted({row["kind"] for row in rows}):
        numbers = [modes[kind, "real"], modes[kind, "scripted"], missed[kind], right[kind]]
        lines.append(f"| {kind} | {' | '.join(str(number or '') for number in numbers)} |")
    totals = [sum(n for (_, mode), n in modes.items() if mode == wanted) for wanted in ("real", "scripted")]
    told = [*totals, missed.total(), right.total()]
    lines.append(f"| **all** | {' | '.join(f'**{number}**' for number in told)} |")
    return "\n".join(lines)
