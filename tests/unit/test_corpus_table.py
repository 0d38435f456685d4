from __future__ import annotations

import json

from tests.candidates.corpus import CORPUS, table


def test_the_document_is_what_the_results_say() -> None:
    rows = json.loads(table.RESULTS.read_text())
    assert table.DOCUMENT.read_text() == table.document(rows), "python -m tests.candidates.corpus.table"
    assert {row["name"] for row in rows} <= set(CORPUS)


def test_what_a_stranger_says_is_text_in_a_cell() -> None:
    row = {"outcome": "caught", "doubtful": False, "ratio": None, "message": "a | b\n<script> [x](y) `z`"}
    assert table._outcome(row) == "caught: a b script x (y) z"
