from __future__ import annotations

import json

from tests.candidates.corpus import CORPUS, table


def test_the_document_has_every_result_once() -> None:
    on_cpu, on_gpu = (json.loads(path.read_text()) for path in table.RESULTS)
    rows, lines = [*on_cpu, *on_gpu], table.document(on_cpu, on_gpu).splitlines()
    shown = sum(f"| {where} | " in line for line in lines for where in ("CPU", "H200")) - 2  # the two sums
    assert shown == sum(not row["hostile"] or row["family"] != "twin" for row in rows)
    assert {row["name"] for row in rows} <= set(CORPUS)


def test_what_a_stranger_says_is_text_in_a_cell() -> None:
    row = {"outcome": "caught", "doubtful": False, "ratio": None, "message": "a | b\n<script> [x](y) `z`"}
    assert table._outcome(row) == "caught: a b script x (y) z"
