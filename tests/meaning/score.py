"""Score what a run says of the cases: which answers are right, and which accuse a version wrongly. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from harness.config.yaml_files import YamlModel, parse_yaml
from harness.worker import protocol
from reports import model

HERE = Path(__file__).parent
Kind = Literal[
    "formula",
    "gradient",
    "broadcasting",
    "default argument",
    "random numbers",
    "promotion",
    "empty input",
    "nan",
    "control",
]


class Answer(str, Enum):
    UNCHANGED = "unchanged"
    CHANGED = "changed"  # the versions compute different things, and nobody is accused
    CORRECTED = "corrected"
    BROKE = "broke"
    DRAWS = "draws"
    NONE = "none"  # undecided, or wrong in both


class Outcome(str, Enum):
    RIGHT = "right"
    INCONCLUSIVE = "inconclusive"  # something changed, but neither what nor which version is at fault
    MISSED = "missed"  # "unchanged" of what changed
    UNFOUNDED = "accuses without evidence"  # the version at fault, which nothing in the run shows
    WRONG_CULPRIT = "WRONG CULPRIT"


ANSWERS = {
    model.PASS: Answer.UNCHANGED,
    model.LESS_EXACT: Answer.UNCHANGED,  # the same meaning, with more rounding
    model.MORE_EXACT: Answer.UNCHANGED,
    model.FIXED: Answer.CORRECTED,
    model.REGRESSED: Answer.BROKE,
    model.MEANING_CHANGED: Answer.CHANGED,
    model.OTHER_DRAWS: Answer.DRAWS,
}


class Case(YamlModel):
    kind: Kind
    origin: str
    faulty: list[str] = Field(description="versions that compute something else than what is right")
    evidence: Literal["none", "definition", "finite differences", "float64"]
    answer: Answer = Field(strict=False)
    seen: str = Field(description="by hand, in both versions")


class Index(YamlModel):
    cases: dict[str, Case]


@dataclass(frozen=True, kw_only=True)
class Score:
    name: str
    case: Case
    answer: Answer
    accused: tuple[str, ...]  # versions whose results the run calls wrong
    outcome: Outcome


def load_cases(path: Path = HERE / "index.yaml") -> dict[str, Case]:
    """The cases, by the names of their operators in matrix.yaml."""
    return parse_yaml(path.read_text(encoding="utf-8"), str(path), Index, like="see the comment at its top").cases


def accused_in(rows: Iterable[Mapping[str, Any]], versions: Mapping[str, str]) -> tuple[str, ...]:
    """Return the versions that the rows call wrong, by their own status or against the baseline."""
    found = set()
    for row in rows:
        correctness = row["correctness"]
        for side in (correctness["baseline"], correctness["this"]):
            if side["status"] == protocol.WRONG:
                found.add(versions[side["environment"]])
        if correctness["verdict"] == model.REGRESSED:
            found.add(versions[row["environment"]])
    return tuple(sorted(found))


def answer_in(rows: Iterable[Mapping[str, Any]]) -> Answer:
    """Return the one answer of all rows of a case but those that did not change; none where there are several."""
    answers = {ANSWERS.get(row["correctness"]["verdict"], Answer.NONE) for row in rows}
    if answers == {Answer.UNCHANGED}:
        return Answer.UNCHANGED
    answers.discard(Answer.UNCHANGED)
    return answers.pop() if len(answers) == 1 else Answer.NONE


def judge(case: Case, answer: Answer, accused: Sequence[str]) -> Outcome:
    """Compare an answer with what is true."""
    if set(accused) - set(case.faulty):
        return Outcome.WRONG_CULPRIT
    if accused and case.evidence == "none":
        return Outcome.UNFOUNDED
    if answer == case.answer:
        return Outcome.RIGHT
    return Outcome.MISSED if answer == Answer.UNCHANGED else Outcome.INCONCLUSIVE


def score(cases: Mapping[str, Case], summary: Mapping[str, Any]) -> list[Score]:
    """Score a run's summary.json, case by case."""
    versions = {each["id"]: each["torch"].partition("+")[0] for each in summary["environments"]}
    scores = []
    for name, case in cases.items():
        rows = [row for row in summary["comparisons"] if row["target"] == name]
        answer, accused = answer_in(rows), accused_in(rows, versions)
        outcome = judge(case, answer, accused)
        scores.append(Score(name=name, case=case, answer=answer, accused=accused, outcome=outcome))
    return scores


def render(scores: Sequence[Score]) -> str:
    """Write the scores as a Markdown table, and how many of each outcome there are."""
    lines = ["| case | kind | evidence | true answer | answer | accused | outcome |", "|---|---|---|---|---|---|---|"]
    for each in scores:
        case, accused = each.case, ", ".join(each.accused) or "nobody"
        cells = (f"`{each.name}`", case.kind, case.evidence, case.answer.value, each.answer.value, accused)
        lines.append(f"| {' | '.join(cells)} | {each.outcome.value} |")
    counts = Counter(each.outcome for each in scores)
    tally = ", ".join(f"{counts[outcome]} {outcome.value}" for outcome in Outcome)
    return "\n".join([*lines, "", f"{len(scores)} cases: {tally}"])
