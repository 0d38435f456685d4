"""Specimens: which answers are theirs, which of them are right, and what is counted."""

from __future__ import annotations

import json

import pytest

from harness.specimens.asking import Answer, answers
from harness.specimens.format import parse_specimen
from harness.specimens.scoring import by_grade, confusion, render, score, summary
from tests.unit.specimens import HEALTHY, SMALL, Given


def test_answers_are_those_of_the_kernel_with_the_parts_of_their_story() -> None:
    causes = [
        Given("reference_moved", kernel=""),
        Given("race", "decisive", parts=(Given("masked_by_inputs", "suggestive"), Given("race"))),
        Given("race", device="cuda"),
        Given("wrong_everywhere"),
    ]
    assert answers(causes, "attention", "cpu") == [
        Answer(cause="race", grade="decisive"),
        Answer(cause="masked_by_inputs", grade="suggestive"),
        Answer(cause="wrong_everywhere", grade="strong"),
    ]
    assert answers([], "attention", "cpu") == []


def given(*causes: str, grade: str = "strong") -> list[Answer]:
    return [Answer(cause=cause, grade=grade) for cause in causes]


@pytest.mark.parametrize(
    ("causes", "right"),
    [
        (("build_moved",), True),
        (("kernel_code_moved", "build_moved"), True),  # one of its causes first, and the main one given
        (("kernel_code_moved",), False),  # the main one is not given
        (("race", "build_moved"), False),
        (("undecided", "build_moved"), False),
        ((), False),
    ],
)
def test_a_faulty_specimen_is_right_by_its_first_answer(causes: tuple[str, ...], right: bool) -> None:
    scored = score("one", parse_specimen(SMALL), given(*causes))
    assert scored.right is right and scored.blamed == ()
    assert scored.first == (causes[0] if causes else "nothing_moved")


@pytest.mark.parametrize(
    ("causes", "blamed"),
    [
        ((), ()),
        (("nothing_moved",), ()),
        (("build_moved",), ()),
        (("undecided",), ()),
        (("nothing_moved", "race"), ("race",)),
    ],
)
def test_a_healthy_specimen_is_blamed_by_any_other_cause(causes: tuple[str, ...], blamed: tuple[str, ...]) -> None:
    scored = score("one", parse_specimen(HEALTHY), given(*causes))
    assert scored.blamed == blamed and scored.right is not bool(blamed)


def test_the_confusion_matrix_counts_and_names_what_is_wrong() -> None:
    faulty, healthy = parse_specimen(SMALL), parse_specimen(HEALTHY)
    scored = [
        score("good", faulty, given("build_moved", grade="decisive")),
        score("also_good", faulty, given("build_moved")),
        score("mistaken", faulty, given("race", grade="decisive")),
        score("open", faulty, given("undecided", grade="")),
        score("well", healthy, []),
        score("blamed", healthy, given("race", grade="suggestive")),
    ]
    assert confusion(scored) == {
        ("build_moved", "build_moved"): 2,
        ("build_moved", "race"): 1,
        ("build_moved", "undecided"): 1,
        ("nothing_moved", "nothing_moved"): 1,
        ("nothing_moved", "race"): 1,
    }
    assert by_grade(scored) == {"decisive": (1, 2), "strong": (1, 1), "none": (1, 2), "suggestive": (0, 1)}
    text = render(scored)
    for line in ("right: 3 of 6", "graded decisive: 1 of 2", "blamed: 1 of 2", "graded decisive: 1\n", "<- mistaken"):
        assert line in text + "\n"
    value = json.loads(json.dumps(summary(scored)))
    assert (value["right"], value["healthy_blamed"], value["wrong_and_decisive"]) == (3, 1, 1)
    assert [one["right"] for one in value["answers"]] == [True, True, False, False, True, False]
