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


def render_table(paths: Sequence[Path]) -> str:
    """Markdown: kind of fault and executor, how many, and what came of them."""
    rows = load_rows(paths)
    counts = Counter((row["kind"], row["executor"], row["outcome"]) for row in rows)
    shown = [name for name in OUTCOMES[::-1] if any(outcome == name for _, _, outcome in counts)]
    head = ["fault", "executor", "faults", *shown]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * 2}{'---:|' * (len(head) - 2)}"]
    for kind, executor in sorted({(kind, executor) for kind, executor, _ in counts}, key=lambda pair: pair[::-1]):
        numbers = [counts[kind, executor, name] for name in shown]
        cells = [str(number or "") for number in numbers]
        lines.append(f"| {kind} | {executor} | {sum(numbers)} | {' | '.join(cells)} |")
    totals = [sum(n for (_, _, outcome), n in counts.items() if outcome == name) for name in shown]
    lines.append(f"| **all** | | **{len(rows)}** | {' | '.join(f'**{n}**' for n in totals)} |")
    return "\n".join(lines)
