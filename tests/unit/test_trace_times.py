"""Which operators a script's other time comes from, and what is said of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.trace import outcome as o
from harness.trace.align import align
from harness.trace.extract import _names
from harness.trace.model import Value
from harness.trace.time_answer import grade, of_times
from harness.trace.times import Compared, largest, output_bytes, rows_of, shares, size_bytes
from reports.trace.page import render
from tests.unit.test_trace_answer import outcome
from tests.unit.traced import op, trace

GOOD = trace(op("mm", [("a", None)], ["b"]), op("div", [("b", (0, 0))], ["c"], line="s.py:2"))
BAD = trace(op("mm", [("a", None)], ["b"]), op("mul", [("b", (0, 0))], ["d"], line="s.py:2"))
SLOWER = Compared((1.0, 1.1, 1.2), (2.0, 2.1, 2.4))


def facts(**given: Any) -> dict[str, Any]:
    """Of a script that takes 1.1 s longer, all of it by one operator."""
    row = {
        "kind": "div -> mul", "line": "s.py:2", "phase": "forward", "calls": [1, 1], "output_bytes": [16, 16],
        "seconds": SLOWER.facts(), "moved": True, "alone": SLOWER.facts(), "program": "time-0", "problem": "",
        **given,
    }  # fmt: skip
    return {
        "whole": SLOWER.facts(), "memory": SLOWER.facts(), "start_bytes": [1 << 20, 1 << 20], "timer": [1.1, 1.2],
        "rows": [row], "all": 0.9, "shown": 0.9, "problem": "",
    }  # fmt: skip


def test_a_difference_is_decided_where_the_ranges_do_not_overlap() -> None:
    assert SLOWER.is_decided and SLOWER.ratio == pytest.approx(2.1 / 1.1)
    assert SLOWER.extremes == pytest.approx((2.0 / 1.2, 2.4 / 1.0))
    assert not Compared((1.0, 2.0), (1.5, 3.0)).is_decided and not Compared((1.0,), (1.0,)).is_decided
    appeared = Compared((0.0, 0.0), (1.0, 1.0))
    assert appeared.is_decided and appeared.ratio is None and appeared.extremes is None


def test_rows_hold_all_calls_of_a_kind_at_a_line_and_those_that_moved_most_come_first() -> None:
    rows = rows_of(GOOD, BAD, align(GOOD, BAD), [[1000, 2000], [1000, 2200]], [[1100, 9000], [900, 9200]])
    assert [(row.kind, row.line) for row in rows] == [("div -> mul", "s.py:2"), ("mm", "s.py:1")]
    assert rows[0].seconds == Compared((2000 * 1e-9, 2200 * 1e-9), (9000 * 1e-9, 9200 * 1e-9))
    assert rows[0].output_bytes == (16, 16) and largest(rows[0], [1, 2], [1, 2]) == ((1,), (1,))
    every, shown = shares(rows, Compared((0.0, 1e-6), (8e-6, 9e-6)), 1)
    assert every == shown == pytest.approx(7.0 / 8.0)
    assert shares(rows, Compared((1.0, 3.0), (2.0, 4.0)), 1) == (None, None)


def test_what_one_version_alone_calls_has_no_call_to_compare() -> None:
    good = trace(op("mm", [("a", None)], ["b"]))
    bad = trace(op("mm", [("a", None)], ["b"]), op("neg", [("b", (0, 0))], ["c"]))
    rows = rows_of(good, bad, align(good, bad), [[10]], [[10, 90]])
    assert rows[0].kind == "nothing -> neg" and largest(rows[0], [10], [10, 90]) == ((), ())


def test_bytes_are_those_of_the_outputs_that_an_operator_makes() -> None:
    sizes = [size_bytes(Value("d", name, ())) for name in ("float32[2, 3]", "bool[5]", "bfloat16[]", "odd")]
    assert sizes == [24, 5, 2, 0]
    assert output_bytes(trace(op("add_.Tensor", [], ["b"]), op("view", [], [""]), op("mm", [], ["c"])), range(3)) == 16


def test_an_operator_is_decisive_where_it_and_the_script_take_longer_alone_too() -> None:
    unclear = Compared((1.0, 3.0), (2.0, 4.0)).facts()
    times = facts()
    assert grade(times, times["rows"][0]) == o.DECISIVE
    assert grade({**times, "whole": unclear}, times["rows"][0]) == o.SUGGESTIVE
    for alone in (None, unclear, Compared((2.0,), (1.0,)).facts()):
        assert grade(times, facts(alone=alone)["rows"][0]) == o.SUGGESTIVE


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (facts(), "takes 1.91 times (1.67 to 2.40) as long as 2.1.0"),
        (facts(), "operators add up to 90% of the difference; 10% is not explained"),
        (facts(), "mul in place of div at s.py:2: +1 s, 100% of the difference"),
        (facts(phase="backward"), "the backward of s.py:2"),
        (facts(alone=None, problem="one version alone calls it"), "did not run alone: one version alone calls it"),
        (facts(alone=Compared((1.0, 3.0), (2.0, 4.0)).facts()), "that does not show it: suggestive"),
        ({**facts(), "whole": Compared((1.0, 3.0), (2.0, 4.0)).facts()}, "Whether the script takes longer is undecid"),
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
        "softmax", "mm", "mm_2", "add_tensor",
    ]  # fmt: skip
