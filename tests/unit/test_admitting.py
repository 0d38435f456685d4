"""Which kernels may be timed: each thing that speaks against one, in one environment alone."""

from __future__ import annotations

from typing import Any

import pytest

from harness.experiments.admission import refusal, untried
from harness.schema.experiment_records import Condition, ConditionResult, ConditionsExperiment, ConditionsRecord
from harness.schema.records import Outcome, Status, ValidationRecord
from harness.schema.storage import from_json_value
from tests.unit import hand_made
from tests.unit.hand_made import PLACE, WHEN, build, target
from tests.unit.spec import BASE, NEXT


def validation(environment: str, passed: int = 5, repeats_differ: int = 0, **changes: Any) -> ValidationRecord:
    own = target(passed, repeats_differ=repeats_differ, status=changes.get("status", "ok"))
    return hand_made.validation(own, environment=environment, **changes)


def result(
    bits: list[str], site: str = "", label: str = "x", status: Status = "ok", message: str = ""
) -> ConditionResult:
    """`bits` of each trial: a letter for each of its runs, the same letter for the same output."""
    runs = len("".join(bits))
    return ConditionResult(
        condition=from_json_value(Condition, {"label": label, "site": site}),
        status=status,
        message=message,
        runs=runs,
        passed=runs if status == "ok" else 0,
        output_sha256=[list(each) for each in bits],
    )


def record(experiment: ConditionsExperiment, *results: ConditionResult, **changes: Any) -> ConditionsRecord:
    place = PLACE | WHEN | {"environment": NEXT, "workload": "w"}
    return ConditionsRecord(**place | {"experiment": experiment, "results": list(results)} | changes)


BUILDS = [build(BASE), build(NEXT)]
VALID = [validation(BASE), validation(NEXT)]
REPEAT = record("repeat", result(["a" * 50]))
CLEAN = record("poison", result(["aa", "bb"], "heap", "heap: zero"), result(["aa", "bb"], "heap", "heap: NaN"))


def refused(builds: Any = BUILDS, validations: Any = VALID, conditions: Any = ()) -> tuple[str, str, Outcome]:
    found = refusal(builds, validations, conditions)
    assert found is not None
    return found.stage, found.environment, found.outcome


def test_nothing_speaks_against_a_right_one() -> None:
    assert refusal(BUILDS, VALID, [CLEAN, REPEAT]) is None


def test_a_kernel_that_does_not_compile_somewhere_is_refused_with_what_the_compiler_said() -> None:
    failed = build(NEXT, status="build_failed", message="error: static assertion failed", log_excerpt="log")
    outcome = Outcome(status="build_failed", message=failed.message, log_excerpt="log")
    assert refused([build(BASE), failed]) == ("build", NEXT, outcome)


@pytest.mark.parametrize("status", ["wrong", "crashed", "timed_out", "killed", "unsupported", "not_run", "broken"])
def test_a_kernel_that_is_not_right_in_one_environment_is_refused(status: Status) -> None:
    wrong = validation(NEXT, status=status, message="19 of 100", passed=2)
    assert refused(validations=[validation(BASE), wrong]) == (
        "correctness",
        NEXT,
        Outcome(status=status, message="19 of 100"),
    )


@pytest.mark.parametrize(
    ("status", "passed", "stage"), [("wrong", 5, "repeat"), ("ok", 5, "repeat"), ("wrong", 3, "correctness")]
)
def test_other_bits_in_validation_are_a_matter_of_repeating(status: Status, passed: int, stage: str) -> None:
    found = refused(validations=[validation(BASE, passed, 2, status=status, message="2 of 5 gave other bits")])
    assert found[:2] == (stage, BASE) and found[2].status == "wrong"


def test_one_other_output_in_fifty_is_refused() -> None:
    stage, _, outcome = refused(conditions=[CLEAN, record("repeat", result(["a" * 49 + "b"], label="50 times"))])
    assert stage == "repeat" and "2 different outputs in 50 runs" in outcome.message


@pytest.mark.parametrize(
    "poisoned",
    [
        result(["a"], "heap", "NaN", "wrong", "0 of 1 runs pass"),
        result([], "heap", "NaN", "crashed", "signal 11"),
        result(["c"], "heap", "NaN"),  # right, of other bits
        result(["ac"], "heap", "NaN"),
    ],
)
def test_a_kernel_that_follows_the_poison_is_refused(poisoned: ConditionResult) -> None:
    stage, where, outcome = refused(conditions=[record("poison", result(["a"], "heap", "zero"), poisoned), REPEAT])
    assert (stage, where) == ("poison", NEXT) and "NaN" in outcome.message


def test_outputs_of_different_places_need_not_be_told_apart_from_other_trials() -> None:
    two = record("poison", result(["a", "b"], "heap", "zero"), result(["a", "b"], "stack", "NaN"))
    assert refusal(BUILDS, VALID, [two, REPEAT]) is None


def test_an_experiment_that_was_lost_is_no_evidence() -> None:
    stage, _, outcome = refused(conditions=[record("poison", status="crashed", message="lost"), REPEAT])
    assert stage == "poison" and outcome.message == "lost"
    nothing = record("poison", result([], "heap", "NaN", "not_run", "no compiler"))
    assert "could not be made: no compiler" in refused(conditions=[nothing, REPEAT])[2].message


def test_a_condition_that_cannot_be_made_here_speaks_against_nobody_and_is_told() -> None:
    some = record("poison", result(["a"], "heap", "zero"), result([], "shared", "shared: NaN", "not_run", "no nvcc"))
    assert refusal(BUILDS, VALID, [some, REPEAT]) is None
    assert untried([some, REPEAT]) == ["shared: NaN: no nvcc"]
