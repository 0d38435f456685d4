"""Which experiments records call for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.experiments.plan import (
    EXPERIMENTS,
    LENGTHS,
    UPCAST,
    Case,
    Focus,
    Planned,
    choose_trials,
    plan_experiments,
    same_machine_code,
    sequences,
)
from harness.schema.experiment_records import Condition, ConditionResult, ConditionsRecord, ExperimentFactor
from harness.schema.records import ValidationRecord
from harness.schema.run_records import Cell, RunRecord
from harness.worker import protocol
from tests.unit import hand_made
from tests.unit.hand_made import WHEN, agreement, build, target
from tests.unit.spec import BASE, NEXT, Spec
from tests.unit.synthetic import run_record
from tests.unit.synthetic_cells import environment_record

THIRD = "torch2.11.0-cu126-py311"
SMALL, LARGE = "seed-fp16", "seed-fp32"
WRONG = {"status": "wrong", "units": [1.0, 90.0, 1.0, 1.0]}


def validation(
    environment: str = BASE,
    workload: str = SMALL,
    *,
    bits: str = "a",
    math: int = 4,
    units: list[float | None] | None = None,
    unwritten: int = 0,
    repeats_differ: int = 0,
    **changes: Any,
) -> ValidationRecord:
    own = target(
        against=[agreement(4, units_per_trial=units or [1.0] * 4), agreement(math, "math")],
        output_sha256=[f"{bits}{trial}" for trial in range(4)],
        repeats_differ=repeats_differ,
        unwritten_trials=unwritten,
    )
    ran = changes.get("status") not in ("crashed", "unsupported", "build_failed", "not_run")
    return hand_made.validation(*[own] * ran, trials=4, environment=environment, workload=workload, **changes)


def run(*validations: ValidationRecord) -> RunRecord:
    environments = tuple(dict.fromkeys([BASE, *(v.environment for v in validations)]))
    kernels = tuple(dict.fromkeys(v.kernel for v in validations))
    record = run_record(Spec(environments=environments, kernels=kernels, workloads=(SMALL, LARGE)))
    flops = {SMALL: 1e6, LARGE: 1e9}
    cells = [
        Cell(environment=v.environment, kernel=v.kernel, workload=v.workload, device=v.device) for v in validations
    ]
    workloads = [replace(w, flops=flops[w.id]) for w in record.workloads]
    return replace(record, cells=cells, workloads=workloads)


def plan(
    *validations: ValidationRecord,
    code: str = "same",
    focus: Focus | None = None,
    problem: str | None = None,
    variables: dict[str, dict[str, str]] | None = None,
) -> Planned:
    builds = [build(BASE), *(build(e, code) for e in {v.environment for v in validations} - {BASE})]
    record = run(*validations)
    workloads = [replace(w, problem=problem) for w in record.workloads]
    record = replace(record, workloads=workloads)
    spec = Spec(variables=variables or {})
    environments = [environment_record(spec, name) for name in record.environments]
    return plan_experiments(record, validations, builds, focus, environments)


def only(planned: Planned) -> Case:
    (case,) = planned.cases
    return case


@pytest.mark.parametrize(
    ("base", "this", "code"),
    [
        ({}, {}, "same"),
        ({}, {}, "other"),
        ({}, {"bits": "b"}, "other"),  # bits that moved with the machine code
        ({}, {"bits": "b"}, ""),  # of a Python kernel nothing is known
        ({}, {"bits": "b", "inputs": "j"}, "same"),
        ({"math": 2}, {"math": 4}, "same"),  # more trials agree
    ],
)
def test_what_makes_no_suspect_runs_nothing(base: dict[str, Any], this: dict[str, Any], code: str) -> None:
    assert plan(validation(**base), validation(NEXT, **this), code=code) == Planned(cases=(), notes=())


@pytest.mark.parametrize(
    ("base", "this", "reason"),
    [
        ({}, {"status": "wrong"}, "verdict moved: ok to wrong"),
        ({"status": "wrong"}, {}, "verdict moved: wrong to ok"),
        ({}, {"status": "crashed"}, "crashed"),
        ({}, {"status": "timed_out"}, "timed out"),
        ({}, {"repeats_differ": 1}, "other bits when run again"),
        ({"repeats_differ": 1}, {}, "other bits when run again"),
        ({"repeats_differ": 1}, {"repeats_differ": 1}, "other bits when run again"),
        ({}, {"unwritten": 2}, "output left unwritten"),
        ({}, {"bits": "b"}, "output bits moved, and machine code did not"),
        ({}, {"math": 3}, "fewer trials agree with math"),
        ({"status": "wrong"}, {"status": "wrong"}, "wrong"),
    ],
)
def test_what_makes_a_suspect(base: dict[str, Any], this: dict[str, Any], reason: str) -> None:
    case = only(plan(validation(**base), validation(NEXT, **this)))
    assert any(reason in text for text in case.reasons)
    assert case.environments == (BASE, NEXT) and case.experiments == EXPERIMENTS + LENGTHS * (reason == "crashed")
    assert [cell.environment for cell in case.cells] == [BASE, NEXT]


@pytest.mark.parametrize(("problem", "more"), [("problem.py", UPCAST), (None, LENGTHS)])
def test_where_it_is_wrong_a_problems_kernel_gets_another_type_and_an_attention_kernel_other_lengths(
    problem: str | None, more: tuple[str, ...]
) -> None:
    wrong = only(plan(validation(**WRONG), validation(NEXT, **WRONG), problem=problem))
    assert wrong.experiments == (*EXPERIMENTS, *more)
    assert only(plan(validation(), validation(NEXT, repeats_differ=1), problem=problem)).experiments == EXPERIMENTS


def test_the_baseline_and_what_moved_not_what_did_not() -> None:
    rows = [validation(), validation(NEXT), validation(THIRD, status="wrong")]
    assert only(plan(*rows)).environments == (BASE, THIRD)
    rows[1] = validation(NEXT, status="wrong")
    assert only(plan(*rows, focus=Focus(torches=("2.11.0",)))).environments == (BASE, THIRD)


def test_where_nothing_can_run_a_note_says_so() -> None:
    found = plan(validation(), validation(NEXT, status="unsupported"))
    assert not found.cases
    assert "no experiment can run where something moved" in found.notes[0] and "unsupported" in found.notes[0]
    assert not plan(validation(), validation(NEXT, status="not_run")).notes


def test_a_baseline_that_cannot_run_leaves_the_other_environment() -> None:
    found = plan(validation(status="build_failed"), validation(NEXT, status="wrong"))
    assert found.cases[0].environments == (NEXT,) and not found.cases[0].factors


def test_the_smallest_suspect_stands_for_the_others_unless_asked() -> None:
    rows = [validation(e, w, status="wrong") for w in (LARGE, SMALL) for e in (BASE, NEXT)]
    found = plan(*rows)
    assert [case.workload for case in found.cases] == [SMALL]
    assert LARGE in found.notes[0] and "--all" in found.notes[0]
    assert [case.workload for case in plan(*rows, focus=Focus(everything=True)).cases] == [SMALL, LARGE]
    assert [case.workload for case in plan(*rows, focus=Focus(workloads=(LARGE,))).cases] == [LARGE]
    assert not plan(*rows, focus=Focus(kernels=("another",))).cases


def test_each_kernel_has_a_case_of_its_own() -> None:
    rows = [validation(e, kernel=k, status="wrong") for k in ("one", "two") for e in (BASE, NEXT)]
    assert [case.kernel for case in plan(*rows).cases] == ["one", "two"]


def test_machine_code_is_compared_without_the_binding() -> None:
    assert same_machine_code(build(BASE), build(NEXT)) is True
    assert same_machine_code(build(BASE), build(NEXT, "other")) is False
    assert same_machine_code(build(BASE, ""), build(NEXT)) is None
    assert same_machine_code(None, build(NEXT)) is None
    for code, factors in (("other", (ExperimentFactor.CODE,)), ("same", ())):
        assert only(plan(validation(), validation(NEXT, status="wrong"), code=code)).factors == {NEXT: factors}


def test_trials_that_failed_come_first_then_those_whose_bits_moved() -> None:
    rows = [validation(units=[1.0, 1.0, 1.0, None]), validation(NEXT)]
    assert choose_trials("independent", rows, 1) == (3,)
    assert choose_trials("independent", rows, 3) == (0, 1, 3)
    moved = hand_made.validation(target(4, output_sha256=["a0", "a1", "b2", "a3"]), trials=4)
    assert choose_trials("independent", [validation(), moved], 2) == (0, 2)
    assert choose_trials("constant_v", rows) == (0, 1, 2, 3, 4)


def test_what_failed_is_called_first_of_a_sequence() -> None:
    rows = [validation(units=[1.0, 1.0, 1.0, None]), validation(NEXT, units=[1.0, 9.0, 1.0, 1.0], status="wrong")]
    case = only(plan(*rows))
    assert case.failing == {"independent": (3, 1)}
    assert sequences(case, None) == {"independent": (3, 1, 0, 2)}


def found(recipe: str, bad: int, **condition: Any) -> ConditionResult:
    within = [[trial != bad] * 2 for trial in range(5)]
    return ConditionResult(status="wrong", condition=Condition(label=recipe, recipe=recipe, **condition), within=within)


def test_so_is_what_failed_in_the_experiment_on_inputs() -> None:
    case = only(plan(validation(), validation(NEXT, math=2)))
    assert case.failing == {} and list(sequences(case, None)) == ["independent"]
    results = [
        found("independent", 2, layout="offset"),
        found("halved_4", 1),
        found("steep_logits", 4),
        found("zero_q", 0),
        found("constant_v", 0),
    ]
    tried = ConditionsRecord(status="ok", experiment="inputs", **vars(case.cells[1]), results=results, key="", **WHEN)
    assert sequences(case, tried) == {"steep_logits": (4, 0, 1, 2), "zero_q": (0, 1, 2, 3)}


def test_a_factor_is_varied_where_two_environments_differ_in_it() -> None:
    rows = [validation(), validation(NEXT, math=2), validation(THIRD, math=2)]
    assert not any(only(plan(*rows)).factors.values())
    case = only(plan(*rows, variables={NEXT: {"OMP_NUM_THREADS": "1"}, BASE: {}}))
    assert [(factor, cell.environment) for factor, cell in case.factor_cells] == [(ExperimentFactor.VARIABLES, NEXT)]
    python = only(plan(*rows, problem="p.py"))
    assert python.factors == dict.fromkeys((NEXT, THIRD), (ExperimentFactor.VERSION,))


def test_validation_recipes_do_not_grow() -> None:
    assert protocol.RECIPES == ("independent", "shared_qkv", "large_logits")
    assert not set(protocol.RECIPES) & set(protocol.EXTRA_RECIPES)


def test_what_loads_nowhere_is_experimented_on_nowhere() -> None:
    def failed(environment: str, *, loads: bool) -> ValidationRecord:
        return replace(validation(environment, status="crashed"), loads=loads, recipes=[])

    nowhere = plan(failed(BASE, loads=False), failed(NEXT, loads=False))
    assert nowhere.cases == () and "loads in no environment" in nowhere.notes[0]
    assert plan(failed(BASE, loads=False), failed(NEXT, loads=True)).cases
    assert plan(validation(BASE), failed(NEXT, loads=False)).cases
    unbuilt = [replace(validation(each, status="build_failed"), recipes=[]) for each in (BASE, NEXT)]
    assert plan(*unbuilt).cases == ()
