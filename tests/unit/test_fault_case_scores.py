"""Fault cases: which answers are theirs, which of them are right, and what is counted."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from tests.fault_cases.cases import FaultCase, parse_index
from tests.fault_cases.score import Answer, answers, by_grade, render, score, summary

SMALL = """\
defaults:
  all: {references: [math], timing: {}, launches: 1, cpu_threads: 2, limits: {}}
  cpp: {kernel: {name: attention}}
cases:
  build_moved/01-small.cpp:
    name: small
    split: held_out
    also: [kernel_code_moved]
    scenario: Right in the one and wrong in the other, since the flags are others there.
    shows: [ok, [wrong, crashed]]
    environments: [{torch: "2.1.0"}, {torch: "2.5.0", flags: {cxx: [-ffast-math]}, variables: {OMP_NUM_THREADS: "1"}}]
    kernel: {sources: {cpu: [attention.cpp]}}
    workloads: [{name: plain, shape: {batch: 1, heads: 1, seq_len: 8, head_dim: 64}, dtypes: {cpu: [float32]}}]
"""


def small(*changes: tuple[str, str]) -> FaultCase:
    text = SMALL
    for old, new in changes:
        text = text.replace(old, new)
    (case,) = parse_index(text).values()
    return case


FAULT = small()
CONTROL = small(("build_moved/", "nothing_moved/"), ("[kernel_code_moved]", "[build_moved]"))


@dataclass(frozen=True)
class Given:
    """A cause, as attribution gives one."""

    cause: str
    grade: str = "likely"
    kernel: str = "attention"
    device: str = "cpu"
    parts: tuple[Given, ...] = ()


def test_answers_are_those_of_the_kernel_with_their_parts() -> None:
    causes = [
        Given("reference_moved", kernel=""),
        Given("race", "proven", parts=(Given("masked_by_inputs", "possible"), Given("race"))),
        Given("race", device="cuda"),
        Given("wrong_everywhere"),
    ]
    assert answers(causes, "cpu") == [
        Answer(cause="race", grade="proven"),
        Answer(cause="masked_by_inputs", grade="possible"),
        Answer(cause="wrong_everywhere", grade="likely"),
    ]
    assert answers([Given("operator_moved", kernel="")], "cpu", "") == [Answer(cause="operator_moved", grade="likely")]


def given(*causes: str, grade: str = "likely") -> list[Answer]:
    return [Answer(cause=cause, grade=grade) for cause in causes]


@pytest.mark.parametrize(
    ("case", "causes", "right"),
    [
        (FAULT, ("build_moved",), True),
        (FAULT, ("kernel_code_moved", "build_moved"), True),  # one of its causes first, and the main one given
        (FAULT, ("kernel_code_moved",), False),  # the main one is not given
        (FAULT, ("race", "build_moved"), False),
        (FAULT, ("undecided", "build_moved"), False),
        (FAULT, (), False),
        (CONTROL, (), True),
        (CONTROL, ("nothing_moved",), True),
        (CONTROL, ("build_moved",), True),
        (CONTROL, ("undecided",), True),
        (CONTROL, ("nothing_moved", "race"), False),
    ],
)
def test_an_answer_is_right_by_its_first_cause_or_has_no_false_positive(
    case: FaultCase, causes: tuple[str, ...], right: bool
) -> None:
    one = score(case, given(*causes))
    assert one.right is right and one.first == (causes[0] if causes else "nothing_moved")
    assert one.false_positives == (("race",) if case is CONTROL and not right else ())


def test_what_is_wrong_is_named_and_counted() -> None:
    scores = [
        score(FAULT, given("build_moved", grade="proven")),
        score(FAULT, given("build_moved")),
        score(FAULT, given("race", grade="proven")),
        score(FAULT, given("undecided", grade="")),
        score(CONTROL, []),
        score(CONTROL, given("race", grade="possible")),
    ]
    assert by_grade(scores) == {"proven": (1, 2), "likely": (1, 1), "none": (1, 2), "possible": (0, 1)}
    assert {" ".join(line.split()) for line in render(scores).splitlines()} >= {
        "WRONG small: race (proven); true: build_moved",
        "right: 3 of 6",
        "graded proven: 1 of 2 right",
        "false positives: 1 of 2 negative controls",
        "wrong, and graded proven: 1",
    }
    value = json.loads(json.dumps(summary(scores)))
    assert (value["right"], value["false_positives"], value["wrong_and_proven"]) == (3, 1, 1)
    assert [one["right"] for one in value["answers"]] == [True, True, False, False, True, False]
