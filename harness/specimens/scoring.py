"""Answers against the truth: which are right, and the confusion matrix. Pure.

Right is a faulty specimen whose first answer is one of its causes and whose main cause is among the answers; and a
healthy one of whose kernel nothing is said but what harmlessly moved. The first answer's grade is the answer's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harness.specimens.asking import UNDECIDED, Answer
from harness.specimens.format import CAUSES, HEALTHY, Specimen

DECISIVE = "decisive"


@dataclass(frozen=True, kw_only=True)
class Scored:
    name: str
    causes: tuple[str, ...]  # true ones, the main one first
    answers: tuple[Answer, ...]
    right: bool
    blamed: tuple[str, ...]  # of a healthy specimen: what its kernel was wrongly said to suffer from

    @property
    def first(self) -> str:
        return self.answers[0].cause if self.answers else HEALTHY

    @property
    def grade(self) -> str:
        return self.answers[0].grade if self.answers else ""

    @property
    def wrong_and_decisive(self) -> bool:
        return not self.right and self.grade == DECISIVE


def score(name: str, specimen: Specimen, answers: Sequence[Answer]) -> Scored:
    known = tuple(answer for answer in answers if answer.cause in CAUSES or answer.cause == UNDECIDED)
    given = [answer.cause for answer in known]
    blamed: tuple[str, ...] = ()
    if specimen.healthy:
        blamed = tuple(cause for cause in given if cause not in (*specimen.causes, UNDECIDED))
        right = not blamed
    else:
        right = bool(given) and given[0] in specimen.causes and specimen.causes[0] in given
    return Scored(name=name, causes=tuple(specimen.causes), answers=known, right=right, blamed=blamed)


def confusion(scored: Sequence[Scored]) -> dict[tuple[str, str], int]:
    """(true main cause, first answer) to the number of specimens."""
    return dict(Counter((one.causes[0], one.first) for one in scored))


def by_grade(scored: Sequence[Scored]) -> dict[str, tuple[int, int]]:
    """Grade of the first answer to (right, all)."""
    grades = dict.fromkeys(one.grade or "none" for one in scored)
    return {
        grade: (sum(one.right for one in scored if (one.grade or "none") == grade),
                sum((one.grade or "none") == grade for one in scored))
        for grade in grades
    }  # fmt: skip


def render(scored: Sequence[Scored]) -> str:
    """The confusion matrix as a table of text, what was wrong, and the counts."""
    counts = confusion(scored)
    lines = [f"{'true main cause':26s} {'first answer':26s} specimens"]
    for true in [cause for cause in CAUSES if any(key[0] == cause for key in counts)]:
        for (_, first), count in sorted(item for item in counts.items() if item[0][0] == true):
            names = [one for one in scored if (one.causes[0], one.first) == (true, first)]
            mark = "" if all(one.right for one in names) else "  <- " + ", ".join(o.name for o in names if not o.right)
            lines.append(f"{true:26s} {first:26s} {count}{mark}")
    right = sum(one.right for one in scored)
    healthy = [one for one in scored if one.causes[0] == HEALTHY]
    lines += ["", f"right: {right} of {len(scored)}"]
    for grade, (good, total) in by_grade(scored).items():
        lines.append(f"  graded {grade}: {good} of {total} right")
    lines.append(f"healthy and blamed: {sum(bool(one.blamed) for one in healthy)} of {len(healthy)}")
    lines.append(f"wrong, and graded decisive: {sum(one.wrong_and_decisive for one in scored)}")
    return "\n".join(lines)


def summary(scored: Sequence[Scored]) -> dict[str, Any]:
    """The same as JSON, with every answer."""
    healthy = [one for one in scored if one.causes[0] == HEALTHY]
    cells = sorted(confusion(scored).items())
    return {
        "specimens": len(scored),
        "right": sum(one.right for one in scored),
        "healthy": len(healthy),
        "healthy_blamed": sum(bool(one.blamed) for one in healthy),
        "wrong_and_decisive": sum(one.wrong_and_decisive for one in scored),
        "by_grade": {grade: {"right": good, "all": total} for grade, (good, total) in by_grade(scored).items()},
        "confusion": [{"true": true, "answer": first, "count": count} for (true, first), count in cells],
        "answers": [asdict(one) | {"first": one.first, "grade": one.grade} for one in scored],
    }
