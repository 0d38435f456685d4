from __future__ import annotations

import json

from tests.candidates.corpus import CORPUS, table


def test_the_document_has_every_result_once() -> None:
    rows = json.loads(table.RESULTS.read_text())
    lines = table.document(rows).splitlines()
    shown = sum(line.startswith("| ") for line in lines) - sum(line.startswith("| what it does") for line in lines)
    assert shown == sum(not row["hostile"] or row["family"] != "twin" for row in rows)
    assert {row["name"] for row in rows} <= set(CORPUS)


def test_what_a_stranger_says_is_text_in_a_cell() -> None:
    row = {"outcome": "caught", "doubtful": False, "ratio": None, "message": "a | b\n<script> [x](y) `z`"}
    assert table._outcome(row) == "caught: a b script x (y) z"
