from __future__ import annotations

import json
from pathlib import Path

from tests.candidates.corpus import CORPUS, table

RESULTS = Path(table.__file__).parent / "results"


def test_every_result_stands_once_in_the_tables() -> None:
    rows = [row for path in RESULTS.glob("*.json") for row in json.loads(path.read_text())]
    lines = table.render_tables(rows).splitlines()
    heads = lines.count("| what it does | what became of it |")
    assert sum(line.startswith("| ") for line in lines) - heads == len(rows)
    assert {row["name"] for row in rows} <= set(CORPUS)


def test_what_a_stranger_says_is_text_in_a_cell() -> None:
    row = {"outcome": "caught", "ratio": None, "message": "a | b\n<script> [x](y) `z`"}
    assert table.render_outcome(row) == "caught: a b script x (y) z"
