"""Which kernels may be timed: each thing that speaks against one, in one environment alone."""

from __future__ import annotations

import pytest

from harness.experiments.admission import refusal, untried
from harness.schema.experiment_records import Condition, ConditionResult, ConditionsExperiment, ConditionsRecord
from harness.schema.records import Agreement, BuildRecord, RecipeResult, Status, TargetResult, ValidationRecord
from tests.unit.spec import BASE, NEXT
from tests.unit.synthetic_cells import sha


def build(environment: str, status: Status = "ok", message: str = "") -> BuildRecord:
    return BuildRecord(environment=environment, kernel="mine", device="cpu", key="k", runnable=True, status=status,
                       message=message, log_excerpt="log" if message else "")  # fmt: skip


def validation(environment: str, status: Status = "ok", message: str = "", passed: int = 5, repeats_differ: int = 0
               ) -> ValidationRecord:  # fmt: skip
    agreement = Agreement(
        against="truth", passed={"rounding": passed}, max_abs=0.1, mean_abs=0.1, within_strict_share=1,
        nonfinite_trials=0, histogram=[0] * 11, worst=None,
    )  # fmt: skip
    target = TargetResult(target="kernel", status=status, against=[agreement], repeats_differ=repeats_differ)
    recipe = RecipeResult(
        recipe="independent", trials=5, input_sha256=[], truth_sha256=[], rounding_cost=[], targets=[target]
    )
    return ValidationRecord(
        environment=environment, kernel="mine", workload="seed-fp16", device="cpu", key="k", decides="rounding",
        limits={}, recipes=[recipe], status=status, message=message, started_utc="", duration_s=1,
    )  # fmt: skip


def result(bits: list[list[str]], site: str = "", label: str = "x", status: Status = "ok", message: str = ""
           ) -> ConditionResult:  # fmt: skip
    runs = sum(map(len, bits))
    return ConditionResult(
        condition=Condition.model_validate({"label": label, "site": site}), status=status, message=message, runs=runs,
        passed=runs if status == "ok" else 0, output_sha256=[[sha(one) for one in each] for each in bits],
    )  # fmt: skip


def record(
    experiment: ConditionsExperiment, *results: ConditionResult, environment: str = NEXT, status: Status = "ok"
) -> ConditionsRecord:
    return ConditionsRecord(
        experiment=experiment, environment=environment, kernel="mine", workload="seed-fp16", device="cpu", key="k",
        results=list(results), started_utc="", duration_s=1, status=status, message="lost" if status != "ok" else "",
    )  # fmt: skip


BUILDS = [build(BASE), build(NEXT)]
VALID = [validation(BASE), validation(NEXT)]
REPEAT = record("repeat", result([["a"] * 50]))
CLEAN = record("poison", result([["a", "a"], ["b", "b"]], "heap", "heap: zero"),
               result([["a", "a"], ["b", "b"]], "heap", "heap: NaN"))  # fmt: skip


def test_nothing_speaks_against_a_right_one() -> None:
    assert refusal(BUILDS, VALID, [CLEAN, REPEAT]) is None


def test_a_kernel_that_does_not_compile_somewhere_is_refused_with_what_the_compiler_said() -> None:
    found = refusal([build(BASE), build(NEXT, "build_failed", "error: static assertion failed")], VALID, [])
    assert found is not None and (found.stage, found.environment) == ("build", NEXT)
    assert found.outcome.message == "error: static assertion failed" and found.outcome.log_excerpt == "log"


@pytest.mark.parametrize("status", ["wrong", "crashed", "timed_out", "killed", "unsupported", "not_run", "broken"])
def test_a_kernel_that_is_not_right_in_one_environment_is_refused(status: Status) -> None:
    found = refusal(BUILDS, [validation(BASE), validation(NEXT, status, "19 of 100", passed=2)], [])
    assert found is not None and (found.stage, found.environment, found.outcome.status) == ("correctness", NEXT, status)


def test_other_bits_in_validation_are_a_matter_of_repeating() -> None:
    found = refusal(BUILDS, [validation(BASE, "wrong", "2 of 5 trials gave other bits", repeats_differ=2)], [])
    assert found is not None and (found.stage, found.environment) == ("repeat", BASE)
    property_ = refusal(BUILDS, [validation(BASE, "ok", "not bit-repeatable", repeats_differ=2)], [])
    assert property_ is not None and property_.stage == "repeat" and property_.outcome.status == "wrong"
    both = refusal(BUILDS, [validation(BASE, "wrong", "wrong, and other bits", passed=3, repeats_differ=2)], [])
    assert both is not None and both.stage == "correctness"


def test_one_other_output_in_fifty_is_refused() -> None:
    found = refusal(BUILDS, VALID, [CLEAN, record("repeat", result([["a"] * 49 + ["b"]], label="50 times"))])
    assert found is not None and found.stage == "repeat" and "2 different outputs in 50 runs" in found.outcome.message


@pytest.mark.parametrize(
    "poisoned",
    [
        record("poison", result([["a"]], "heap", "zero"), result([["a"]], "heap", "NaN", "wrong", "0 of 1 runs pass")),
        record("poison", result([["a"]], "heap", "zero"), result([], "heap", "NaN", "crashed", "signal 11")),
        record("poison", result([["a"]], "heap", "zero"), result([["c"]], "heap", "NaN")),  # right, of other bits
        record("poison", result([["a", "a"]], "heap", "zero"), result([["a", "c"]], "heap", "NaN")),
    ],
)
def test_a_kernel_that_follows_the_poison_is_refused(poisoned: ConditionsRecord) -> None:
    found = refusal(BUILDS, VALID, [poisoned, REPEAT])
    assert found is not None and (found.stage, found.environment) == ("poison", NEXT) and "NaN" in found.outcome.message


def test_outputs_of_different_places_need_not_be_told_apart_from_other_trials() -> None:
    two = record("poison", result([["a"], ["b"]], "heap", "zero"), result([["a"], ["b"]], "stack", "NaN"))
    assert refusal(BUILDS, VALID, [two, REPEAT]) is None


def test_an_experiment_that_was_lost_is_no_evidence() -> None:
    lost = refusal(BUILDS, VALID, [record("poison", status="crashed"), REPEAT])
    assert lost is not None and lost.stage == "poison" and lost.outcome.message == "lost"
    nothing = record("poison", result([], "heap", "NaN", "not_run", "no compiler"))
    found = refusal(BUILDS, VALID, [nothing, REPEAT])
    assert found is not None and "could not be made: no compiler" in found.outcome.message


def test_a_condition_that_cannot_be_made_here_speaks_against_nobody_and_is_told() -> None:
    some = record("poison", result([["a"]], "heap", "zero"), result([], "shared", "shared: NaN", "not_run", "no nvcc"))
    assert refusal(BUILDS, VALID, [some, REPEAT]) is None
    assert untried([some, REPEAT]) == ["shared: NaN: no nvcc"]
