"""Which operators a script's other time comes from, and what is said of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.schema.run_records import Thresholds
from harness.stats import decide
from harness.trace import outcome as o
from harness.trace.align import align
from harness.trace.extract import _names
from harness.trace.time_answer import grade, of_times
from harness.trace.times import MOVED, Compared, Measured, compare, largest, rows_of, shares
from reports.trace.page import render
from tests.unit.test_trace_answer import outcome
from tests.unit.traced import op, trace

GOOD = trace(op("mm", [("a", None)], ["b"]), op("div", [("b", (0, 0))], ["c"], line="s.py:2"))
BAD = trace(op("mm", [("a", None)], ["b"]), op("mul", [("b", (0, 0))], ["d"], line="s.py:2"))
RULE = Thresholds()
SLOWER, UNCLEAR = compare([((1.0, 1.1, 1.2), (2.0, 2.1, 2.4)), ((1.0, 3.0, 1.0), (2.0, 1.0, 4.0))], RULE)
FASTER, WHOLE = compare([((2.0, 2.1, 2.4), (1.0, 1.1, 1.2)), ((1e-6, 1e-6), (8e-6, 8e-6))], RULE)


def facts(**given: Any) -> dict[str, Any]:
    """Of a script that takes 1.1 s longer, all of it by one operator."""
    row = {
        "kind": "div -> mul",
        "line": "s.py:2",
        "phase": "forward",
        "calls": [1, 1],
        "peak_bytes": [16, 1 << 21],
        "seconds": SLOWER.facts(),
        "moved": True,
        "alone": SLOWER.facts(),
        "problem": "",
        **given,
    }
    return {
        "whole": SLOWER.facts(),
        "memory": SLOWER.facts(),
        "start_bytes": [1 << 20, 1 << 20],
        "timer": [1.1, 1.2],
        "rows": [row],
        "all": 0.9,
        "shown": 0.9,
        "problem": "",
        "command": "kernel-matrix matrix X",
        "memory_row": row,
    }


def test_samples_of_the_same_round_are_compared_as_launches_of_a_matrix_are() -> None:
    assert SLOWER.verdict in MOVED and UNCLEAR.verdict == decide.UNDECIDED
    drift = [1.0, 2.0, 4.0, 8.0, 16.0]  # more than the difference, and the same for both
    (paired,) = compare([(drift, [1.2 * each for each in drift])], RULE)
    assert paired.verdict == decide.SLOWER and paired.ratio == pytest.approx(1.2)
    (same,) = compare([(drift, [1.01 * each for each in drift])], RULE)
    assert same.verdict == decide.SAME and same.verdict not in MOVED


def test_rows_hold_all_calls_of_a_kind_at_a_line_and_those_that_moved_most_come_first() -> None:
    sides = (
        Measured(GOOD, [[1000, 2000], [1000, 2200]], [64, 8]),
        Measured(BAD, [[1100, 9000], [900, 9200]], [64, 32]),
    )
    rows = rows_of(*sides, align(GOOD, BAD), WHOLE, RULE)
    assert [(row.kind, row.line) for row in rows] == [("div -> mul", "s.py:2"), ("mm", "s.py:1")]
    assert (rows[0].seconds.good, rows[0].seconds.bad) == ((2000 * 1e-9, 2200 * 1e-9), (9000 * 1e-9, 9200 * 1e-9))
    assert rows[0].peak_bytes == (8, 32) and largest(rows[0], [1, 2], [1, 2]) == ((1,), (1,))
    every, shown = shares(rows, WHOLE, 1)
    assert every == shown == pytest.approx(1.0)
    assert shares(rows, UNCLEAR, 1) == (None, None)


@pytest.mark.parametrize(("whole_s", "verdict"), [(1e-6, decide.SLOWER), (1.0, decide.UNDECIDED)])
def test_only_what_takes_a_share_of_the_script_is_tested(whole_s: float, verdict: str) -> None:
    sides = [Measured(each, [[100, ns]] * 5, [0, 0]) for each, ns in ((GOOD, 2000), (BAD, 9000))]
    rows = rows_of(sides[0], sides[1], align(GOOD, BAD), Compared((whole_s,), (whole_s,)), RULE)
    assert rows[0].seconds.verdict == verdict and (rows[0].seconds.low is None) is (verdict == decide.UNDECIDED)


def test_what_one_version_alone_calls_has_no_call_to_compare() -> None:
    good = trace(op("mm", [("a", None)], ["b"]))
    bad = trace(op("mm", [("a", None)], ["b"]), op("neg", [("b", (0, 0))], ["c"]))
    sides = Measured(good, [[10]], [0]), Measured(bad, [[10, 90]], [0, 8])
    rows = rows_of(*sides, align(good, bad), Compared((1e-7,), (1e-7,)), RULE)
    assert rows[0].kind == "nothing -> neg" and largest(rows[0], [10], [10, 90]) == ((), ())
    assert rows[0].seconds.verdict == decide.SLOWER and rows[0].seconds.ratio is None, "that it is new needs no test"


def test_an_operator_is_decisive_where_it_and_the_script_take_longer_alone_too() -> None:
    times = facts()
    assert grade(times, times["rows"][0]) == o.DECISIVE
    assert grade({**times, "whole": UNCLEAR.facts()}, times["rows"][0]) == o.SUGGESTIVE
    for alone in (None, UNCLEAR.facts(), FASTER.facts()):
        assert grade(times, facts(alone=alone)["rows"][0]) == o.SUGGESTIVE


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (facts(), f"takes {SLOWER.ratio:.2f} times ({SLOWER.low:.2f} to {SLOWER.high:.2f}) as long as 2.1.0"),
        (facts(), "operators add up to 90% of the difference; 10% is not explained"),
        (facts(), "mul in place of div at s.py:2: +1 s, 100% of the difference"),
        (facts(phase="backward"), "the backward of s.py:2"),
        (facts(alone=None, problem="one version alone calls it"), "was not timed alone: one version alone calls it"),
        (facts(alone=UNCLEAR.facts()), "that does not show it: suggestive"),
        ({**facts(), "whole": UNCLEAR.facts()}, "Whether the script takes longer is undecid"),
        (facts(), "A call of mul in place of div at s.py:2 needs up to 1.53e-05 and 2 MiB"),
        (facts(), "kernel-matrix matrix X shows"),
        ({**facts(), "rows": [], "problem": "2.5.0 varies"}, "is not known: 2.5.0 varies"),
    ],
)
def test_times_are_said_with_their_spread_and_shown(times: dict[str, Any], said: str, tmp_path: Path) -> None:
    found = outcome(o.NOTHING_MOVED, times=times)
    assert said in " ".join(text for _, text in of_times(found)) and of_times(found)[0] in map(tuple, found.rest)
    found.cost = {"2.1.0": {"plain_s": 1.0, "recorded_s": 2.0, "operators": 3}}
    o.save(found, tmp_path)
    assert ("Time by operator and line" in render(tmp_path).read_text()) is bool(times["rows"])


def test_problem_files_have_names_of_their_own() -> None:
    assert _names(["_softmax", "nothing -> mm", "mm", "add.Tensor, mul -> addcmul"]) == [
        "softmax",
        "mm",
        "mm_2",
        "add_tensor",
    ]
