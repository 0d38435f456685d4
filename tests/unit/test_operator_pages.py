"""What a page says of PyTorch's own operators: outputs one by one, other bits, another form."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from reports import model
from reports.compare.correctness import OutputsSeen, judge
from reports.compare.outputs import forms, other_bits
from reports.model import Bits, Correctness, CorrectnessSide, OutputSide
from reports.render.advice import operator_also, operator_changes, operator_to_do, wrong_parts
from reports.render.subjects import State, Subject


def output(name: str = "", layout: str = "contiguous", bits: str = "a", dtype: str = "float32") -> OutputSide:
    return OutputSide(name=name, dtype=dtype, shape=(2, 3, 4, 5), layout=layout, max_units=0.5, sha256=(bits, bits))


def row_of(before: list[OutputSide], here: list[OutputSide], **bits: int) -> Any:
    given = {"a": before, "b": here}
    sides = [CorrectnessSide(environment=name, status="ok", outputs=outputs) for name, outputs in given.items()]
    known = Bits(**{"compared": 2, "identical": 0, "inputs_differ": 0, **bits})
    judged = Correctness(verdict="pass", why="", baseline=sides[0], this=sides[1], bits=known)
    return SimpleNamespace(
        alone=False,
        correctness=judged,
        baseline="a",
        environment="b",
        workload="w",
        timed=[],
        id="w",
        kind="operator",
        target="f",
        modes={},
        memory=SimpleNamespace(verdict="pass"),
        device="cpu",
    )


def said(row: Any) -> list[str]:
    told: Any = SimpleNamespace(rows=[row], base="2.1.0", where=lambda names: "in 2.5.0")
    return operator_also(told)


def test_outputs_with_other_bits_are_named() -> None:
    before, here = [output("values"), output("indices", bits="b")], [output("values"), output("indices", bits="c")]
    assert other_bits(row_of(before, here)) == ["indices"]
    assert other_bits(row_of(before, before)) == []
    assert other_bits(row_of([output()], [output(bits="b")])) == ["the output"]


def test_of_what_does_not_repeat_bits_say_nothing() -> None:
    before, here = [output()], [output(bits="b")]
    assert other_bits(row_of(before, here, unsteady=1)) == []
    assert other_bits(row_of(before, here, inputs_differ=1)) == []


def test_another_form_is_told_though_all_numbers_are_the_same() -> None:
    moved = row_of([output()], [output(layout="channels_last")])
    assert forms(moved) == [("the output", "contiguous", "channels_last")]
    found = forms(row_of([output("y"), output("old")], [output("y", dtype="float64"), output("new")]))
    assert found == [("old", "returned", "not returned"), ("new", "not returned", "returned")]
    assert forms(row_of([output()], [output()])) == []


@pytest.mark.parametrize(
    ("here", "said"),
    [
        (output(dtype="float16"), "the output is float16 in 2.5.0, float32 in 2.1.0"),
        (replace(output(), shape=(6,)), "the output is [6] in 2.5.0, [2, 3, 4, 5] in 2.1.0"),
        (
            replace(output("y", dtype="int64"), shape=()),
            "y is int64 [] in 2.5.0, float32 [2, 3, 4, 5] in 2.1.0",
        ),
    ],
    ids=["dtype", "shape", "both"],
)
def test_another_type_is_a_verdict_and_heads_the_entry(here: OutputSide, said: str) -> None:
    names = {"a": "2.1.0", "b": "2.5.0"}
    row = row_of([output(here.name)], [here])
    base, this = row.correctness.baseline, row.correctness.this
    seen = OutputsSeen(base=base, this=this, bits=row.correctness.bits)
    judged = judge(seen, None, 0.05, names)
    assert judged.verdict == model.OTHER_TYPE and judged.why.endswith(said)
    row.correctness = judged
    told = Subject([row], names)
    assert (told.state, told.text) == (State.RETYPED, f"{said}; right in 2.1.0 and in 2.5.0")
    row.correctness = judge(replace(seen, this=replace(this, status="wrong")), None, 0.05, names)
    assert row.correctness.verdict == model.REGRESSED and row.correctness.why.endswith(said)
    told = Subject([row], names)
    assert (told.state, told.text) == (State.BROKE, f"broke in 2.5.0: right in 2.1.0, wrong in 2.5.0; {said}")


def test_what_is_written_and_what_leaves_the_range_is_said() -> None:
    row = row_of([output()], [output()])
    row.correctness = replace(
        row.correctness,
        verdict="failing",
        baseline=replace(row.correctness.baseline, status="wrong", writes=("y",), leaves_range=3),
        this=replace(row.correctness.this, status="wrong", writes=("y",), leaves_range=3),
    )
    told = Subject([row], {"a": "2.1.0", "b": "2.5.0"})
    assert told.text == "wrong in 2.1.0 and in 2.5.0: the upgrade did not cause it"
    assert told.more == [
        "it writes to its input y in 2.1.0 and in 2.5.0: each call has inputs of its own, and what it writes is judged "
        "as an output",
        "in 2.1.0 and in 2.5.0, plain arithmetic in this dtype overflows or underflows in an intermediate step, which "
        "is no rounding error",
    ]


def test_operators_that_changed_are_counted() -> None:
    same, other = row_of([output()], [output()]), row_of([output()], [output(bits="b", layout="channels_last")])
    assert operator_changes([same], {}) == operator_changes([], {}) == []
    assert operator_changes([same, other, other], {"a": "2.1.0"}) == [
        "1 operator with other bits than in 2.1.0: f",
        "1 operator with outputs of another form than in 2.1.0: f",
    ]


def test_outputs_of_one_row_share_a_sentence() -> None:
    before = [output("dq"), output("dk", "strides (1, 2, 3, 4)")]
    here = [output("dq", "strides (4, 3, 2, 1)"), output("dk", bits="b")]
    assert said(row_of(before, here)) == [
        "in 2.5.0, dk has other bits than in 2.1.0, within rounding (w)",
        "in 2.5.0, dq is strided as (4, 3, 2, 1) (contiguous in 2.1.0), dk is contiguous (strided as (1, 2, 3, 4) in "
        "2.1.0): what comes next may have to copy it (w)",
    ]


def test_the_gradient_that_is_wrong_is_named_where_others_are_right() -> None:
    outputs = [output("y"), replace(output("grad of x"), wrong=True)]
    row = row_of([output("y"), output("grad of x")], outputs)
    row.correctness = replace(row.correctness, this=replace(row.correctness.this, status="wrong"))
    told: Any = SimpleNamespace(rows=[row], names={"a": "2.1.0", "b": "2.5.0"}, where=lambda names, ends: "in 2.5.0")
    assert wrong_parts(told) == ["what is wrong is grad of x; the other outputs are right (w, in 2.5.0)"]
    both = replace(row.correctness.this, outputs=[replace(each, wrong=True) for each in outputs])
    row.correctness = replace(row.correctness, this=both)
    assert wrong_parts(told) == []


def test_where_the_verdict_moved_other_bits_are_no_news() -> None:
    row = row_of([output()], [output(bits="b")])
    row.correctness = replace(row.correctness, baseline=replace(row.correctness.baseline, status="wrong"))
    assert said(row) == []


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        ({"2.3.0": "regressed"}, "stay below it"),
        ({"2.3.0": "regressed", "2.5.0": "regressed"}, "stay below it"),
        ({"2.3.0": "regressed", "2.5.0": "pass"}, "use 2.5.0"),
    ],
)
def test_where_a_later_version_is_as_before_it_is_named(verdicts: dict[str, str], said: str) -> None:
    rows = [
        SimpleNamespace(environment=name, timed=[], correctness=SimpleNamespace(verdict=verdict))
        for name, verdict in verdicts.items()
    ]
    told: Any = SimpleNamespace(state=State.BROKE, rows=rows, names={name: name for name in verdicts})
    [advice] = operator_to_do(told, [])
    assert said in advice
