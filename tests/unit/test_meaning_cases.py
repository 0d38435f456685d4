"""The cases of meaning that changed: what is asked of them, and how a run's answers are scored."""

from __future__ import annotations

from typing import Any

import pytest

from harness.config.matrix import load_matrix
from harness.config.operators import OperatorEntry
from harness.worker import protocol
from reports import model
from tests.archives import SUFFIX, read_archive
from tests.meaning.score import HERE, Answer, Case, Outcome, answer_in, judge, load_cases, score

VERSIONS = {"old": "2.1.0", "new": "2.5.0"}


def a_case(answer: Answer, faulty: list[str], evidence: str = "definition") -> Case:
    return Case.model_validate(
        {"kind": "formula", "origin": "planted", "faulty": faulty, "evidence": evidence, "answer": answer, "seen": "-"}
    )


def a_row(verdict: str, before: str = protocol.OK, now: str = protocol.OK) -> dict[str, Any]:
    sides = {"baseline": {"environment": "old", "status": before}, "this": {"environment": "new", "status": now}}
    return {"target": "toy", "environment": "new", "correctness": {"verdict": verdict, **sides}}


def outcome(case: Case, *rows: dict[str, Any]) -> Outcome:
    environments = [{"id": name, "torch": f"{version}+cpu"} for name, version in VERSIONS.items()]
    return score({"toy": case}, {"environments": environments, "comparisons": list(rows)})[0].outcome


def name_of(operator: OperatorEntry) -> str:
    return operator.name or (operator.problem or "").rpartition("/")[2].removesuffix(".py")


def test_every_case_is_in_the_matrix_and_has_its_evidence() -> None:
    matrix, _ = load_matrix(HERE / "matrix.yaml")
    cases, problems = load_cases(), read_archive(HERE / f"problems{SUFFIX}")
    operators = {name_of(operator): operator for operator in matrix.operators}
    assert operators.keys() == cases.keys()
    for name, operator in operators.items():
        if operator.problem is not None:
            has_truth = "\ndef truth(" in problems[operator.problem.removeprefix("problems/")]
            assert has_truth == (cases[name].evidence == "definition"), name


def test_at_least_half_of_the_faults_are_corrected_by_the_newer_version() -> None:
    cases = [case for case in load_cases().values() if case.kind != "control"]
    faults = [case.faulty for case in cases if case.faulty]
    assert len(faults) >= 20
    assert faults.count(["2.1.0"]) * 2 >= len(faults)
    assert len({case.kind for case in cases}) == 8


@pytest.mark.parametrize(
    ("case", "row", "expected"),
    [
        (a_case(Answer.CORRECTED, ["2.1.0"]), a_row(model.FIXED, protocol.WRONG), Outcome.RIGHT),
        (a_case(Answer.CORRECTED, ["2.1.0"]), a_row(model.REGRESSED, now=protocol.WRONG), Outcome.WRONG_CULPRIT),
        (a_case(Answer.CORRECTED, ["2.1.0"]), a_row(model.FAILING, *[protocol.WRONG] * 2), Outcome.WRONG_CULPRIT),
        (a_case(Answer.CORRECTED, ["2.1.0"]), a_row(model.PASS), Outcome.MISSED),
        (a_case(Answer.CORRECTED, ["2.1.0"]), a_row(model.UNDECIDED, protocol.WRONG), Outcome.INCONCLUSIVE),
        (a_case(Answer.BROKE, ["2.5.0"]), a_row(model.REGRESSED, now=protocol.WRONG), Outcome.RIGHT),
        (a_case(Answer.CHANGED, ["2.1.0"], "none"), a_row(model.FIXED, protocol.WRONG), Outcome.UNFOUNDED),
        (a_case(Answer.CHANGED, [], "none"), a_row(model.REGRESSED, now=protocol.WRONG), Outcome.WRONG_CULPRIT),
        (a_case(Answer.DRAWS, [], "none"), a_row(model.UNDECIDED), Outcome.INCONCLUSIVE),
        (a_case(Answer.UNCHANGED, [], "none"), a_row(model.LESS_EXACT), Outcome.RIGHT),
    ],
)
def test_an_answer_is_right_only_with_the_right_culprit(case: Case, row: dict[str, Any], expected: Outcome) -> None:
    assert outcome(case, row) == expected


def test_rows_that_did_not_change_do_not_hide_the_one_that_did() -> None:
    gradient = a_row(model.REGRESSED, now=protocol.WRONG)
    assert answer_in([a_row(model.PASS), gradient]) == Answer.BROKE
    assert answer_in([a_row(model.FIXED), gradient]) == Answer.NONE
    assert answer_in([]) == Answer.NONE


def test_a_version_that_nothing_shows_to_be_at_fault_may_not_be_accused() -> None:
    assert judge(a_case(Answer.CHANGED, ["2.1.0"], "none"), Answer.CHANGED, ()) == Outcome.RIGHT
    assert judge(a_case(Answer.CHANGED, ["2.1.0"], "none"), Answer.CHANGED, ("2.1.0",)) == Outcome.UNFOUNDED
