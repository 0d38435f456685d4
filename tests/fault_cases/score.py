"""What the attribution answers, against the truth: which answers are right. Pure.

An answer is right for a fault case if its first cause is one of the case's and the case's main cause is among the
causes given; and for a negative control if its kernel is given nothing but what moved harmlessly. The first cause's
grade is the answer's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.fault_cases.cases import CAUSES, KERNEL, NOTHING_MOVED, FaultCase

PROVEN = "proven"
UNDECIDED = "undecided"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One cause that the attribution gave, and its grade."""

    cause: str
    grade: str


def answers(causes: Sequence[Any], device: str, subject: str = KERNEL) -> list[Answer]:
    """Those of the subject among the causes of reports.attribute, ranked; the parts of a cause come behind it."""
    found: dict[str, Answer] = {}
    for cause in causes:
        if cause.kernel == subject and cause.device == device:
            for part in (cause, *cause.parts):
                found.setdefault(part.cause, Answer(cause=str(part.cause), grade=str(part.grade)))
    return list(found.values())


@dataclass(frozen=True, kw_only=True)
class Score:
    name: str
    causes: tuple[str, ...]  # true ones, the main one first
    answers: tuple[Answer, ...]
    right: bool
    false_positives: tuple[str, ...]  # of a negative control: causes that do not hold

    @property
    def first(self) -> str:
        return self.answers[0].cause if self.answers else NOTHING_MOVED

    @property
    def grade(self) -> str:
        return self.answers[0].grade if self.answers else ""

    @property
    def wrong_and_proven(self) -> bool:
        return not self.right and self.grade == PROVEN

    @property
    def line(self) -> str:
        given = ", ".join(f"{answer.cause} ({answer.grade})" for answer in self.answers) or "no answer"
        return f"right  {self.name}: {given}" if self.right else f"WRONG  {self.name}: {given}; true: {self.causes[0]}"


def score(case: FaultCase, answers: Sequence[Answer]) -> Score:
    known = tuple(answer for answer in answers if answer.cause in CAUSES or answer.cause == UNDECIDED)
    given = [answer.cause for answer in known]
    false_positives: tuple[str, ...] = ()
    if case.negative_control:
        false_positives = tuple(cause for cause in given if cause not in (*case.causes, UNDECIDED))
        right = not false_positives
    else:
        right = bool(given) and given[0] in case.causes and case.causes[0] in given
    return Score(name=case.name, causes=tuple(case.causes), answers=known, right=right, false_positives=false_positives)


def by_grade(scores: Sequence[Score]) -> dict[str, tuple[int, int]]:
    """Grade of the first answer to (right, all)."""
    every, right = (Counter(one.grade or "none" for one in scores if one.right or not only) for only in (False, True))
    return {grade: (right[grade], count) for grade, count in every.items()}


def summary(scores: Sequence[Score]) -> dict[str, Any]:
    """The counts as JSON, with every answer."""
    controls = [one for one in scores if one.causes[0] == NOTHING_MOVED]
    return {
        "cases": len(scores),
        "right": sum(one.right for one in scores),
        "negative_controls": len(controls),
        "false_positives": sum(bool(one.false_positives) for one in controls),
        "wrong_and_proven": sum(one.wrong_and_proven for one in scores),
        "by_grade": {grade: {"right": right, "all": total} for grade, (right, total) in by_grade(scores).items()},
        "answers": [asdict(one) | {"first": one.first, "grade": one.grade} for one in scores],
    }


def render(scores: Sequence[Score]) -> str:
    """Return the cases that are answered wrongly, and the counts."""
    total = summary(scores)
    lines = [one.line for one in scores if not one.right]
    lines.append(f"right: {total['right']} of {total['cases']}")
    lines += [f"  graded {grade}: {right} of {every} right" for grade, (right, every) in by_grade(scores).items()]
    lines.append(f"false positives: {total['false_positives']} of {total['negative_controls']} negative controls")
    lines.append(f"wrong, and graded proven: {total['wrong_and_proven']}")
    return "\n".join(lines)
