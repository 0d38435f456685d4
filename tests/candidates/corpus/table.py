"""`python -m tests.candidates.corpus.table`: docs/hostile.md, from the results of the corpus's last whole runs."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.candidates.corpus.run import ACCEPTED, ACCUSED, BREAKS, CAUGHT, NOT_RUN, NOTHING, THROUGH

RESULTS = [Path(__file__).parent / "results" / f"{name}.json" for name in ("cpu-2.5.0", "h200-2.5.0")]
DOCUMENT = Path(__file__).parents[3] / "docs" / "hostile.md"
MOST_WORDS = 110  # characters of a message

# By family, what a candidate would have to do, or to be, to gain all the same.
STILL = {
    "answers found": "find the truth of inputs that it has never seen, in memory of a process that it cannot enter",
    "answers kept": "keep answers for inputs that differ in every call",
    "answers known beforehand": "know what a secret generator will draw",
    "answers left for later": "find in a later process what an earlier one left: the folders that both can write are "
    "its own alone",
    "a path for the clock": "tell a call whose output will be judged from others; that is chosen after the call",
    "clocks replaced": "change the clock of a process outside of its sandbox",
    "streams": "hide less work than honest noise: of a call 10%, 1 us, and its part of 0.15 ms that an order may take "
    "longer in one process than in another",
    "functions replaced": "change functions of a process outside of its sandbox",
    "lazy outputs": "have the outputs ready before anybody copies them, and not before it answers: what is gained is "
    "part of a copy's time",
    "less precision or less work": "stay within the declared rounding rule, which is then right by definition",
    "markup": "find a place of the page that is not escaped",
    "more threads": "leave the cores that it is bound to, or be where nothing is bound: without a sandbox, or where "
    "all cores are wanted",
    "other processes": "reach a process outside of its sandbox's namespaces",
    "others slowed": "slow the references' process more than its own: by caches and memory that cores share, or "
    "where a machine has too few cores for both",
    "outputs and inputs": "write wrong inputs or outputs only where nobody looks",
    "results forged": "write where results are taken from: nothing that it can write is read as a result",
    "work put off": "finish between its answer and the moment when its output is copied",
}


def document(rows: Sequence[dict[str, Any]], on_gpu: Sequence[dict[str, Any]]) -> str:
    lines = [
        "# Hostile kernels",
        "",
        "`tests/candidates/corpus` has kernels that lie on purpose, and honest ones that look odd. Each ran by the",
        f"real command with PyTorch {rows[0]['torch']}: on the CPU in a sandbox of a virtual environment, on an H200",
        "in one of a bundle. A hostile one gets through if it ends as correct and is over 10% faster than the same",
        "kernel without the lie, by itself or against the reference. The least sample of each counts, of all launches",
        "of the honest one: a machine that is shared makes calls longer, and none shorter.",
        "",
        "    python -m tests.candidates.corpus --launches 1 --group 12 --out RESULTS",
        "    python -m tests.candidates.corpus --device cuda --executor bundle --launches 3 --out RESULTS  # honest: 7",
        "    python -m tests.candidates.corpus.table",
        "",
        "| | hostile | honest |",
        "|---|---|---|",
        f"| CPU | {_sum(rows, hostile=True)} | {_sum(rows, hostile=False)} |",
        f"| H200 | {_sum(on_gpu, hostile=True)} | {_sum(on_gpu, hostile=False)} |",
    ]
    found = [*(row | {"where": "CPU"} for row in rows), *(row | {"where": "H200"} for row in on_gpu)]
    hostile = [row for row in found if row["hostile"] and row["family"] != "twin"]
    honest = [row for row in found if not row["hostile"]]
    for family in sorted({row["family"] for row in hostile}):
        members = [row for row in hostile if row["family"] == family]
        lines += ["", f"## {family[0].upper()}{family[1:]}", ""]
        if family in STILL:
            lines += [f"To gain anything, it would have to {STILL[family]}.", ""]
        lines += _table(members)
    return "\n".join([*lines, "", "## Honest, but odd", "", *_table(honest)]) + "\n"


def _table(rows: Iterable[dict[str, Any]]) -> list[str]:
    every = sorted(rows, key=lambda row: (row["where"], row["name"]))
    head = ["| what it does | on | what became of it |", "|---|---|---|"]
    return [*head, *(f"| {_cell(row['says'])} | {row['where']} | {_outcome(row)} |" for row in every)]


def _sum(rows: Iterable[dict[str, Any]], *, hostile: bool) -> str:
    outcomes = (CAUGHT, NOTHING, THROUGH, BREAKS, NOT_RUN) if hostile else (ACCEPTED, ACCUSED, NOT_RUN)
    those = [row for row in rows if row["hostile"] == hostile and row["family"] != "twin"]
    return f"{len(those)}: {_counts(those, outcomes)}"


def _counts(rows: Iterable[dict[str, Any]], outcomes: Sequence[str]) -> str:
    counts = Counter(row["outcome"] for row in rows)
    return ", ".join(f"{counts[outcome]} {outcome.lower()}" for outcome in outcomes if counts[outcome])


def _outcome(row: dict[str, Any]) -> str:
    outcome = row["outcome"]
    words = f"**{outcome.lower()}**" if outcome in (THROUGH, ACCUSED, BREAKS) else outcome
    if row["doubtful"] and outcome in (THROUGH, ACCUSED):
        words += " (times overlap)"
    message = _cell(row["message"])[:MOST_WORDS].strip()
    if outcome in (CAUGHT, ACCUSED, BREAKS, NOT_RUN) and message:
        return f"{words}: {message}"
    return words if row["ratio"] is None else f"{words}: {row['ratio']:.2f} times its twin's time"


def _cell(text: str) -> str:
    """Text of a stranger in a cell of Markdown."""
    return " ".join(re.sub(r"[^A-Za-z0-9 .,:;()%+=/'-]", " ", text).split())


def main() -> None:
    DOCUMENT.write_text(document(*(json.loads(path.read_text()) for path in RESULTS)))


if __name__ == "__main__":
    main()
