"""Environments that differ in a variable: it is a rival of whatever else differs, until it was varied alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.schema.storage import Run
from reports.attribute.causes import (
    DECISIVE,
    ENVIRONMENT_CONFOUNDER,
    KERNEL_CODE_MOVED,
    NOTHING_MOVED,
    OUT_OF_BOUNDS,
    STRONG,
    SUGGESTIVE,
    UNINITIALISED_HOST,
    UNSUPPORTED_COMBINATION,
)
from tests.unit.attributed import CODE, FELL, both, causes_of, first, spec
from tests.unit.experiments import FOLLOWS, STILL, clean, poison, swap, variables
from tests.unit.spec import BASE, NEXT, Case

SET: dict[str, Any] = {"variables": {NEXT: {"ATEN_CPU_CAPABILITY": "default"}}, "machine_code": CODE}
PLACES = ((BASE, BASE), (BASE, NEXT), (NEXT, BASE), (NEXT, NEXT))


def tried(letters: str) -> Any:
    """R, W, X for right, wrong, dead: the baseline with its variables and the other's, then the other with these."""
    told = {"R": True, "W": False, "X": None}
    return lambda run: variables(run, dict(zip(PLACES, (told[letter] for letter in letters), strict=True)))


def test_code_that_moved_beside_a_variable_is_only_suggested(tmp_path: Path) -> None:
    found = first(tmp_path / "both", spec(FELL, **SET), clean)
    assert (found.cause, found.grade) == (KERNEL_CODE_MOVED, SUGGESTIVE)
    assert [part.cause for part in found.parts] == [ENVIRONMENT_CONFOUNDER]
    assert "ATEN_CPU_CAPABILITY" in found.parts[0].statement and "To separate the two" in found.parts[0].statement
    found = first(tmp_path / "code", spec(FELL, machine_code=CODE), clean)
    assert (found.cause, found.grade) == (KERNEL_CODE_MOVED, STRONG)


def test_object_code_that_decides_under_either_variables_needs_no_other_experiment(tmp_path: Path) -> None:
    found = first(tmp_path, spec(FELL, **SET), clean, lambda run: swap(run, "AABB"))
    assert (found.cause, found.grade) == (KERNEL_CODE_MOVED, DECISIVE)


@pytest.mark.parametrize(
    ("letters", "cause", "grade"),
    [
        ("RWRW", ENVIRONMENT_CONFOUNDER, DECISIVE),  # with the variable, in both
        ("RRRW", ENVIRONMENT_CONFOUNDER, STRONG),  # it takes both
        ("RRWW", KERNEL_CODE_MOVED, STRONG),  # with the place, whichever variable
    ],
)
def test_what_the_result_goes_with(letters: str, cause: str, grade: str, tmp_path: Path) -> None:
    found = first(tmp_path, spec(FELL, **SET), clean, tried(letters))
    assert (found.cause, found.grade) == (cause, grade)
    if letters == "RWRW":
        assert KERNEL_CODE_MOVED not in found.causes
        assert "ATEN_CPU_CAPABILITY" in found.statement


def test_a_variable_that_is_excluded_is_not_named_beside_the_place(tmp_path: Path) -> None:
    made = spec(FELL, **SET, settings={NEXT: {"float32_matmul_precision": "medium"}})
    found = first(tmp_path, made, clean, lambda run: swap(run, "ABAB"), tried("RRWW"))
    assert found.cause == ENVIRONMENT_CONFOUNDER
    assert "float32_matmul_precision" in found.statement and "ATEN_CPU_CAPABILITY" not in found.statement


def test_a_variable_that_brings_out_a_fault_in_memory_is_its_part(tmp_path: Path) -> None:
    filled = {"output": FOLLOWS, "heap": STILL, "stack": STILL}
    found = first(tmp_path, spec(FELL, **SET), lambda run: poison(run, filled), tried("RWRW"))
    assert found.cause == UNINITIALISED_HOST and ENVIRONMENT_CONFOUNDER in found.causes


GARBAGE = Case(passed=0, bits="new", units=400.0, repeats_differ=3, unwritten=8)


@pytest.mark.parametrize(
    ("in_baseline", "letters", "cause"),
    [
        (STILL, "RWRW", ENVIRONMENT_CONFOUNDER),
        (FOLLOWS, "RWRW", UNINITIALISED_HOST),  # it reads there too, and is right by luck
        (None, "RWRW", UNINITIALISED_HOST),  # not tried
        (STILL, "RWWW", UNINITIALISED_HOST),  # the variable is not all
    ],
)
def test_a_fault_in_memory_that_the_variables_bring(
    in_baseline: tuple[str, ...] | None, letters: str, cause: str, tmp_path: Path
) -> None:
    """Where it is right, it notices no filling of its memory: then what made it wrong leads."""

    def filled(run: Run) -> None:
        poison(run, {"output": FOLLOWS, "heap": FOLLOWS, "stack": STILL})
        if in_baseline is not None:
            poison(run, {"output": in_baseline, "heap": STILL, "stack": STILL}, environment=BASE)

    found = first(tmp_path, spec((NEXT, "kernel", GARBAGE), variables=SET["variables"]), filled, tried(letters))
    assert found.cause == cause
    if cause == ENVIRONMENT_CONFOUNDER:
        assert found.grade == STRONG and UNINITIALISED_HOST in found.causes


@pytest.mark.parametrize(("letters", "lead"), [("RXRX", ENVIRONMENT_CONFOUNDER), ("RXXX", OUT_OF_BOUNDS)])
def test_a_process_that_dies_by_the_variables(letters: str, lead: str, tmp_path: Path) -> None:
    """One death is the end of all runs under them; where some die under either's, the fault in memory is all."""
    dies = Case(status="crashed", message="the kernel's process died by SIGSEGV")
    found = first(
        tmp_path,
        spec((NEXT, "kernel", dies), variables=SET["variables"]),
        lambda run: poison(run, {"output": STILL, "heap": STILL, "stack": STILL}, environment=BASE),
        tried(letters),
    )
    assert found.cause == lead and OUT_OF_BOUNDS in found.causes


def test_what_is_refused_in_both_is_no_matter_of_a_variable(tmp_path: Path) -> None:
    refused = Case(status="unsupported", message="no such head size")
    found = first(tmp_path, spec(*both("kernel", refused), **SET))
    assert (found.cause, found.grade) == (UNSUPPORTED_COMBINATION, DECISIVE)


def test_a_variable_that_changes_nothing_blames_nobody(tmp_path: Path) -> None:
    found = causes_of(tmp_path, spec(**SET, launches=10, spread=0.001), clean, tried("RRRR"))
    assert {cause.cause for cause in found if cause.kernel} == {NOTHING_MOVED}
