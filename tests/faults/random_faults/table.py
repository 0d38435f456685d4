"""Rows in, a table out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.faults.random_faults.campaign import OUTCOMES


def load_rows(paths: Sequence[Path]) -> list[dict[str, Any]]:
    return [json.loads(line) for path in paths for line in path.read_text().splitlines() if line.strip()]


def is_missed(row: dict[str, Any]) -> bool:
    """Whether a fault met nothing: the command had ended, or there was nothing to do it to."""
    return row["what"].startswith(("there was no", "it had ended")) or row["when"] == "after its end"


def render_table(paths: Sequence[Path]) -> str:
    """Markdown: kind of fault and executor, how many, and what came of them. `missed`: of those, how many met
    nothing. `remedies`: how many took one that the command named."""
    rows = load_rows(paths)
    missed = Counter((row["kind"], row["executor"]) for row in rows if is_missed(row))
    remedies = Counter((row["kind"], row["executor"]) for row in rows if row["remedies"])
    counts = Counter((row["kind"], row["executor"], row["outcome"]) for row in rows)
    shown = [name for name in OUTCOMES[::-1] if any(outcome == name for _, _, outcome in counts)]
    head = ["fault", "executor", "faults", "missed", "remedies", *shown]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * 2}{'---:|' * (len(head) - 2)}"]
    for kind, executor in sorted({(kind, executor) for kind, executor, _ in counts}, key=lambda pair: pair[::-1]):
        numbers = [counts[kind, executor, name] for name in shown]
        counted = [sum(numbers), missed[kind, executor], remedies[kind, executor], *numbers]
        lines.append(f"| {kind} | {executor} | {' | '.join(str(number or '') for number in counted)} |")
    totals = [sum(n for (_, _, outcome), n in counts.items() if outcome == name) for name in shown]
    everything = [len(rows), missed.total(), remedies.total(), *totals]
    lines.append(f"| **all** | | {' | '.join(f'**{number}**' for number in everything)} |")
    return "\n".join(lines)
