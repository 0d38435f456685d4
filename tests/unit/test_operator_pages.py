"""What a page says of PyTorch's own operators: outputs one by one, other bits, another form."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from reports.compare.outputs import forms, other_bits
from reports.model import Bits, Correctness, CorrectnessSide, OutputSide
from reports.render.advice import wrong_parts
from reports.render.of_operators import also, changes, to_do
from reports.render.verdict_text import BROKE


def output(name: str = "", layout: str = "contiguous", bits: str = "a", dtype: str = "float32") -> OutputSide:
    return OutputSide(name=name, dtype=dtype, shape=(2, 3, 4, 5), layout=layout, max_units=0.5, sha256=(bits, bits))


def row_of(before: list[OutputSide], here: list[OutputSide], **bits: int) -> Any:
    given = {"a": before, "b": here}
    sides = [CorrectnessSide(environment=name, status="ok", outputs=outputs) for name, outputs in given.items()]
    known = Bits(**{"compared": 2, "identical": 0, "inputs_differ": 0, **bits})
    judged = Correctness(verdict="pass", why="", baseline=sides[0], this=sides[1], bits=known)
    return SimpleNamespace(
        alone=False, correctness=judged, baseline="a", environment="b", workload="w", timed=[], kind="operator",
        target="f",
    )  # fmt: skip


def said(row: Any) -> list[str]:
    told: Any = SimpleNamespace(rows=[row], names={"a": "2.1.0", "b": "2.5.0"}, where=lambda names: "in 2.5.0")
    return also(told)


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
    assert found == [
        ("y", "float32 [2, 3, 4, 5]", "float64 [2, 3, 4, 5]"),
        ("old", "returned", "not returned"),
        ("new", "not returned", "returned"),
    ]
    assert forms(row_of([output()], [output()])) == []


def test_operators_that_changed_are_counted() -> None:
    same, other = row_of([output()], [output()]), row_of([output()], [output(bits="b", layout="channels_last")])
    assert changes([same], {}) == changes([], {}) == []
    assert changes([same, other, other], {"a": "2.1.0"}) == [
        "1 operator with other bits than in 2.1.0: f", "1 operator with outputs of another form than in 2.1.0: f",
    ]  # fmt: skip


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
    told: Any = SimpleNamespace(rows=[row], names={"a": "2.1.0", "b": "2.5.0"}, where=lambda names: "in 2.5.0")
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
    told: Any = SimpleNamespace(state=BROKE, rows=rows, names={name: name for name in verdicts})
    [advice] = to_do(told, [])
    assert said in advice
