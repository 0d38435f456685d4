"""Which experiments records call for."""

from __future__ import annotations

from typing import Any

import pytest

from harness.experiments.plan import (
    EXPERIMENTS,
    LENGTHS,
    UPCAST,
    Focus,
    Planned,
    choose_trials,
    plan_experiments,
    same_machine_code,
    sequences,
)
from harness.schema.experiment_records import Condition, ConditionResult, ConditionsRecord
from harness.schema.records import Agreement, BuildRecord, RecipeResult, TargetResult, ValidationRecord
from harness.schema.run_records import Cell, RunRecord
from harness.worker import protocol
from tests.unit.spec import BASE, NEXT, Spec
from tests.unit.synthetic import run_record

THIRD = "torch2.11.0-cu126-py311"
SMALL, LARGE = "seed-fp16", "seed-fp32"


def agreement(against: str, passed: int, trials: int, units: list[float | None] | None = None) -> Agreement:
    return Agreement(
        against=against,
        passed={"kernelbench": passed, "strict": passed} | ({"rounding": passed} if against == "truth" else {}),
        max_abs=0.0,
        mean_abs=0.0,
        units_per_trial=units or [],
        within_strict_share=1.0,
        nonfinite_trials=0,
        histogram=[0] * 11,
        worst=None,
    )


def validation(
    environment: str = BASE,
    workload: str = SMALL,
    *,
    kernel: str = "attention_scalar",
    status: Any = "ok",
    bits: str = "a",
    inputs: str = "i",
    math: int = 4,
    units: list[float | None] | None = None,
    repeats_differ: int = 0,
    unwritten: int = 0,
) -> ValidationRecord:
    target = TargetResult(
        target="kernel",
        status="ok",
        against=[agreement("truth", 4, 4, units or [1.0] * 4), agreement("math", math, 4)],
        output_sha256=[f"{bits}{trial}" for trial in range(4)],
        repeats_differ=repeats_differ,
        unwritten_trials=unwritten,
    )
    recipe = RecipeResult(
        recipe="independent",
        trials=4,
        input_sha256=[f"{inputs}{trial}" for trial in range(4)],
        truth_sha256=[],
        rounding_cost=[],
        targets=[target],
    )
    return ValidationRecord(
        environment=environment,
        kernel=kernel,
        workload=workload,
        device="cpu",
        key="k",
        decides="rounding",
        limits={"rounding": 4.0},
        recipes=[] if status in ("crashed", "unsupported", "build_failed", "not_run") else [recipe],
        started_utc="",
        duration_s=1,
        status=status,
    )


def build(environment: str, code: str = "c", kernel: str = "attention_scalar") -> BuildRecord:
    objects = {"kernel.o": code, "attention_binding.o": environment} if code else {}
    return BuildRecord(
        environment=environment, kernel=kernel, device="cpu", key="b", runnable=True, status="ok", objects=objects
    )


def run(*validations: ValidationRecord) -> RunRecord:
    environments = tuple(dict.fromkeys([BASE, *(v.environment for v in validations)]))
    kernels = tuple(dict.fromkeys(v.kernel for v in validations))
    record = run_record(Spec(environments=environments, kernels=kernels, workloads=(SMALL, LARGE)))
    flops = {SMALL: 1e6, LARGE: 1e9}
    cells = [
        Cell(environment=v.environment, kernel=v.kernel, workload=v.workload, device=v.device) for v in validations
    ]
    workloads = [w.model_copy(update={"flops": flops[w.id]}) for w in record.workloads]
    return record.model_copy(update={"cells": cells, "workloads": workloads})


def plan(
    *validations: ValidationRecord,
    code: str = "c",
    focus: Focus | None = None,
    variables: dict[str, dict[str, str]] | None = None,
) -> Planned:
    builds = [build(BASE), *(build(e, code) for e in {v.environment for v in validations} - {BASE})]
    return plan_experiments(run(*validations), validations, builds, focus, variables)


def test_nothing_moved_and_nothing_wrong_runs_nothing() -> None:
    assert plan(validation(), validation(NEXT)) == Planned(cases=(), notes=())
    assert plan(validation(), validation(NEXT, math=4), code="other") == Planned(cases=(), notes=())


@pytest.mark.parametrize(
    ("base", "this", "reason"),
    [
        ({}, {"status": "wrong"}, "verdict moved: ok to wrong"),
        ({"status": "wrong"}, {}, "verdict moved: wrong to ok"),
        ({}, {"status": "crashed"}, "crashed"),
        ({}, {"status": "timed_out"}, "timed out"),
        ({}, {"repeats_differ": 1}, "other bits when run again"),
        ({"repeats_differ": 1}, {"repeats_differ": 1}, "other bits when run again"),
        ({}, {"unwritten": 2}, "output left unwritten"),
        ({}, {"bits": "b"}, "output bits moved, and machine code did not"),
        ({}, {"math": 3}, "fewer trials agree with math"),
        ({"status": "wrong"}, {"status": "wrong"}, "wrong"),
    ],
)
def test_what_makes_a_suspect(base: dict[str, Any], this: dict[str, Any], reason: str) -> None:
    found = plan(validation(**base), validation(NEXT, **this))
    assert len(found.cases) == 1
    assert any(reason in text for text in found.cases[0].reasons)
    assert found.cases[0].environments == (BASE, NEXT)
    assert found.cases[0].experiments == EXPERIMENTS
    assert [cell.environment for cell in found.cases[0].cells] == [BASE, NEXT]


def of_a_problem(*validations: ValidationRecord) -> Planned:
    record = run(*validations)
    workloads = [w.model_copy(update={"problem": "problem.py"}) for w in record.workloads]
    builds = [build(BASE), build(NEXT, "c")]
    return plan_experiments(record.model_copy(update={"workloads": workloads}), validations, builds)


def test_a_wider_type_is_tried_where_a_problems_kernel_is_wrong() -> None:
    wrong = {"status": "wrong", "units": [1.0, 90.0, 1.0, 1.0]}
    found = of_a_problem(validation(**wrong), validation(NEXT, **wrong))
    assert found.cases[0].experiments == (*EXPERIMENTS, *UPCAST)
    assert of_a_problem(validation(), validation(NEXT, repeats_differ=1)).cases[0].experiments == EXPERIMENTS


def test_other_lengths_are_tried_where_an_attention_kernel_is_wrong() -> None:
    wrong = {"status": "wrong", "units": [1.0, 90.0, 1.0, 1.0]}
    assert plan(validation(**wrong), validation(NEXT, **wrong)).cases[0].experiments == (*EXPERIMENTS, *LENGTHS)
    assert plan(validation(), validation(NEXT, repeats_differ=1)).cases[0].experiments == EXPERIMENTS


def test_bits_that_moved_with_the_machine_code_or_the_inputs_are_no_suspect() -> None:
    assert not plan(validation(), validation(NEXT, bits="b"), code="other").cases
    assert not plan(validation(), validation(NEXT, bits="b"), code="").cases, "of a Python kernel nothing is known"
    assert not plan(validation(), validation(NEXT, bits="b", inputs="j")).cases


def test_more_trials_that_agree_are_no_suspect() -> None:
    assert not plan(validation(math=2), validation(NEXT, math=4)).cases


def test_the_baseline_and_what_moved_not_what_did_not() -> None:
    found = plan(validation(), validation(NEXT), validation(THIRD, status="wrong"))
    assert found.cases[0].environments == (BASE, THIRD)
    only = plan(
        validation(), validation(NEXT, status="wrong"), validation(THIRD, status="wrong"),
        focus=Focus(torches=("2.11.0",)),
    )  # fmt: skip
    assert only.cases[0].environments == (BASE, THIRD)


def test_wrong_in_the_baseline_alone_is_run_in_both() -> None:
    found = plan(validation(repeats_differ=1), validation(NEXT))
    assert found.cases[0].environments == (BASE, NEXT)


def test_where_nothing_can_run_a_note_says_so() -> None:
    found = plan(validation(), validation(NEXT, status="unsupported"))
    assert not found.cases
    assert "no experiment can run where something moved" in found.notes[0] and "unsupported" in found.notes[0]
    assert not plan(validation(), validation(NEXT, status="not_run")).notes


def test_a_baseline_that_cannot_run_leaves_the_other_environment() -> None:
    found = plan(validation(status="build_failed"), validation(NEXT, status="wrong"))
    assert found.cases[0].environments == (NEXT,) and found.cases[0].machine_code_moved is None


def test_the_smallest_suspect_stands_for_the_others_unless_asked() -> None:
    rows = [validation(e, w, status="wrong") for w in (LARGE, SMALL) for e in (BASE, NEXT)]
    found = plan(*rows)
    assert [case.workload for case in found.cases] == [SMALL]
    assert LARGE in found.notes[0] and "--all" in found.notes[0]
    assert [case.workload for case in plan(*rows, focus=Focus(everything=True)).cases] == [SMALL, LARGE]
    assert [case.workload for case in plan(*rows, focus=Focus(workloads=(LARGE,))).cases] == [LARGE]
    assert not plan(*rows, focus=Focus(kernels=("another",))).cases
    assert not plan(*rows, focus=Focus(devices=("cuda",))).cases


def test_each_kernel_has_a_case_of_its_own() -> None:
    rows = [validation(e, kernel=k, status="wrong") for k in ("one", "two") for e in (BASE, NEXT)]
    assert [case.kernel for case in plan(*rows).cases] == ["one", "two"]


def test_machine_code_is_compared_without_the_binding() -> None:
    assert same_machine_code(build(BASE), build(NEXT)) is True
    assert same_machine_code(build(BASE), build(NEXT, "other")) is False
    assert same_machine_code(build(BASE, ""), build(NEXT)) is None
    assert same_machine_code(None, build(NEXT)) is None
    assert plan(validation(), validation(NEXT, status="wrong"), code="other").cases[0].machine_code_moved is True
    assert plan(validation(), validation(NEXT, status="wrong")).cases[0].machine_code_moved is False


def test_trials_that_failed_come_first_then_those_whose_bits_moved() -> None:
    rows = [validation(units=[1.0, 1.0, 1.0, None]), validation(NEXT, bits="a")]
    assert choose_trials("independent", rows, 1) == (3,)
    assert choose_trials("independent", rows, 3) == (0, 1, 3)
    other = rows[0].model_copy(
        update={
            "recipes": [
                recipe.model_copy(
                    update={
                        "targets": [recipe.targets[0].model_copy(update={"output_sha256": ["a0", "a1", "b2", "a3"]})]
                    }
                )
                for recipe in rows[0].recipes
            ]
        }
    )
    assert choose_trials("independent", [validation(), other], 2) == (2, 3)
    assert choose_trials("constant_v", rows) == (0, 1, 2, 3, 4)


def test_what_failed_is_called_first_of_a_sequence() -> None:
    rows = [validation(units=[1.0, 1.0, 1.0, None]), validation(NEXT, units=[1.0, 9.0, 1.0, 1.0], status="wrong")]
    case = plan(*rows).cases[0]
    assert case.failing == {"independent": (3, 1)}
    assert sequences(case, None) == {"independent": (3, 1, 0, 2)}


def record(*results: ConditionResult) -> ConditionsRecord:
    return ConditionsRecord(
        status="ok", experiment="inputs", environment=NEXT, kernel="attention_scalar", workload=SMALL, device="cpu",
        results=list(results), started_utc="", duration_s=0, key="",
    )  # fmt: skip


def found(recipe: str, bad: int, **condition: Any) -> ConditionResult:
    within = [[trial != bad] * 2 for trial in range(5)]
    return ConditionResult(status="wrong", condition=Condition(label=recipe, recipe=recipe, **condition), within=within)


def test_so_is_what_failed_in_the_experiment_on_inputs() -> None:
    case = plan(validation(), validation(NEXT, math=2)).cases[0]
    assert case.failing == {} and list(sequences(case, None)) == ["independent"]
    tried = record(
        found("independent", 2, layout="offset"), found("halved_4", 1), found("steep_logits", 4), found("zero_q", 0),
        found("constant_v", 0),
    )  # fmt: skip
    assert sequences(case, tried) == {"steep_logits": (4, 0, 1, 2), "zero_q": (0, 1, 2, 3)}


def test_variables_are_tried_in_both_environments_where_they_differ() -> None:
    rows = [validation(), validation(NEXT, math=2), validation(THIRD, math=2)]
    assert plan(*rows).cases[0].other_variables == {BASE: ()}
    case = plan(*rows, variables={NEXT: {"OMP_NUM_THREADS": "1"}, BASE: {}}).cases[0]
    assert case.other_variables == {BASE: (NEXT,), NEXT: (BASE,)}


def test_validation_recipes_do_not_grow() -> None:
    assert protocol.RECIPES == ("independent", "shared_qkv", "large_logits")
    assert not set(protocol.RECIPES) & set(protocol.EXTRA_RECIPES)


@pytest.mark.parametrize(
    "message",
    [
        "loading mine.so raised ImportError: undefined symbol: f",
        "independent: constructing ModelNew raised AttributeError: solution.py defines no ModelNew",
        'independent: trial 0 raised NotImplementedError: Module [ModelNew] is missing the required "forward" function',
    ],
)
def test_what_loads_nowhere_is_experimented_on_nowhere(message: str) -> None:
    def failed(environment: str, words: str) -> ValidationRecord:
        return validation(environment, status="crashed").model_copy(update={"message": words, "recipes": []})

    nowhere = plan(failed(BASE, message), failed(NEXT, message))
    assert nowhere.cases == () and "loads in no environment" in nowhere.notes[0]
    assert plan(failed(BASE, message), failed(NEXT, "trial 0 raised ValueError: x")).cases
    assert plan(validation(BASE), failed(NEXT, message)).cases
    unbuilt = [validation(each, status="build_failed").model_copy(update={"recipes": []}) for each in (BASE, NEXT)]
    assert plan(*unbuilt).cases == ()
