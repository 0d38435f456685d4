"""Kernels that a call changes, and kernels that are made of PyTorch's operators."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.attribute import explained
from reports.attribute.causes import (
    DECISIVE,
    ENVIRONMENT_CONFOUNDER,
    INPUTS_MOVED,
    PREDECESSOR_SENSITIVITY,
    RACE,
    STRONG,
    SUGGESTIVE,
    UNINITIALISED_HOST,
    UNSUPPORTED_COMBINATION,
    WRONG_EVERYWHERE,
)
from reports.attribute.facts.experiments import settles
from tests.unit.experiments import FOLLOWS, STILL, conditions, poison, result
from tests.unit.spec import BASE, NEXT, SEED_ONLY, Case, Spec
from tests.unit.synthetic import write_run


def spec(**changes: object) -> Spec:
    return Spec(**({"trials": 10, "launches": 1, **SEED_ONLY} | changes))  # type: ignore[arg-type]


def both(case: Case) -> dict[tuple[str, str, str], Case]:
    return {(environment, "kernel", "seed-fp16"): case for environment in (BASE, NEXT)}


@pytest.mark.parametrize(
    ("letters", "settled"), [("BAAAA", True), ("AAAAA", False), ("BACAA", False), ("BA", False), ("BABAB", False)]
)
def test_what_settles_after_the_first_call(letters: str, settled: bool) -> None:
    assert settles([result(letters, 0.5)]) is settled
    assert not settles([result(letters)]), "all of them right"


def test_the_first_call_alone_is_no_race(tmp_path: Path) -> None:
    run = write_run(tmp_path, spec(cases=both(Case(passed=5, units=400.0, repeats_differ=5))))
    poison(run, {"output": ("BA", "BA", "BA", "BA"), "heap": ("BA", "BA", "BA", "BA")}, passed=0.5)
    conditions(run, "repeat", [result("BAAAAAAA", 0.5)])
    found = explained(tmp_path)
    assert (found[0].cause, found[0].grade) == (PREDECESSOR_SENSITIVITY, STRONG)
    assert RACE not in found[0].causes


def test_calls_that_keep_changing_are_a_race(tmp_path: Path) -> None:
    run = write_run(tmp_path, spec(cases=both(Case(passed=5, units=400.0, repeats_differ=5))))
    poison(run, {"output": ("BA", "AB", "BA", "BB"), "heap": ("BA", "BA", "AB", "BA")}, passed=0.5)
    conditions(run, "repeat", [result("BAABABBA", 0.5)])
    assert explained(tmp_path)[0].cause == RACE


def test_who_writes_to_its_inputs_is_named_whatever_its_error(tmp_path: Path) -> None:
    write_run(tmp_path, spec(cases=both(Case(passed=0, units=1.1, mutated=3))))
    found = explained(tmp_path)[0]
    assert (found.cause, found.grade) == (INPUTS_MOVED, DECISIVE)
    assert "writes to its inputs" in found.statement


def test_an_argument_that_a_version_lacks_is_not_supported_there(tmp_path: Path) -> None:
    message = "independent: trial 0 raised TypeError: attention() got an unexpected keyword argument 'enable_gqa'"
    cases = {(NEXT, "kernel", "seed-fp16"): Case(status="crashed", message=message)}
    write_run(tmp_path, spec(cases=cases))
    assert explained(tmp_path)[0].cause == UNSUPPORTED_COMBINATION


REFUSED = Case(status="crashed", message="trial 0 raised IndexError: Dimension out of range")


def test_an_exception_in_one_environment_alone_is_a_refusal(tmp_path: Path) -> None:
    run = write_run(tmp_path, spec(cases={(NEXT, "kernel", "seed-fp16"): REFUSED}))
    assert (explained(tmp_path)[0].cause, explained(tmp_path)[0].grade) == (UNSUPPORTED_COMBINATION, STRONG)
    conditions(run, "repeat", [result("").model_copy(update={"status": "crashed", "message": REFUSED.message})])
    assert explained(tmp_path)[0].cause == UNSUPPORTED_COMBINATION
    conditions(run, "repeat", [result("AA")])
    assert explained(tmp_path)[0].cause != UNSUPPORTED_COMBINATION, "it comes and goes"


@pytest.mark.parametrize(
    "message",
    [
        "trial 3 raised IndexError: Dimension out of range",  # three trials did not
        "trial 0 raised OSError: [Errno 28] No space left on device",
        "trial 0 raised RuntimeError: DefaultCPUAllocator: can't allocate memory",
        "trial 0 raised FileNotFoundError: [Errno 2] weights.bin",
        "trial 0 raised RuntimeError: CUDA error: an illegal memory access was encountered",
        "the kernel's process died by SIGSEGV",
    ],
)
def test_what_is_no_refusal(message: str, tmp_path: Path) -> None:
    write_run(tmp_path, spec(cases={(NEXT, "kernel", "seed-fp16"): Case(status="crashed", message=message)}))
    assert explained(tmp_path)[0].cause != UNSUPPORTED_COMBINATION


def test_an_exception_in_both_environments_is_not_blamed_on_the_version(tmp_path: Path) -> None:
    write_run(tmp_path, spec(cases=both(REFUSED)))
    assert explained(tmp_path)[0].cause != UNSUPPORTED_COMBINATION


def refusal(code: int) -> Case:
    said = f"attention_forward: no (code {code}, shape [1, 2, 128, 80], Float, built with WIDTHS=64)"
    return Case(status="crashed", message=f"independent: trial 0 raised RuntimeError: {said}")


@pytest.mark.parametrize("code", [-3, -4, -6])
def test_a_kernels_own_refusal_in_both_environments(code: int, tmp_path: Path) -> None:
    write_run(tmp_path, spec(cases=both(refusal(code))))
    found = explained(tmp_path)[0]
    assert (found.cause, found.grade) == (UNSUPPORTED_COMBINATION, STRONG)
    assert "refuses by itself" in found.statement and WRONG_EVERYWHERE not in found.causes


@pytest.mark.parametrize("code", [-1, -2, -5, -7, -8, -30, 700])
def test_a_code_for_something_else_is_no_refusal(code: int, tmp_path: Path) -> None:
    write_run(tmp_path, spec(cases=both(refusal(code))))
    assert explained(tmp_path)[0].cause == WRONG_EVERYWHERE


def test_an_exception_where_variables_differ_may_be_theirs(tmp_path: Path) -> None:
    cases = {(NEXT, "kernel", "seed-fp16"): REFUSED}
    write_run(tmp_path, spec(cases=cases, variables={NEXT: {"ATTENTION_TILE": "0"}}))
    assert (explained(tmp_path)[0].cause, explained(tmp_path)[0].grade) == (UNSUPPORTED_COMBINATION, SUGGESTIVE)


def test_memory_leads_and_no_confounder_is_named_where_no_variable_differs(tmp_path: Path) -> None:
    cases = {(NEXT, "kernel", "seed-fp16"): Case(passed=0, units=400.0, bits="new")}
    run = write_run(tmp_path, spec(cases=cases))
    poison(run, {"output": FOLLOWS, "heap": STILL, "stack": STILL})
    found = explained(tmp_path)[0]
    assert found.cause == UNINITIALISED_HOST and ENVIRONMENT_CONFOUNDER not in found.causes
