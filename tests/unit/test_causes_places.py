"""Kernels that are right on one GPU of a machine, and not on another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.schema.experiment_records import Condition, ConditionResult
from reports.attribute.causes import MASKED_BY_INPUTS, STRONG, Cause
from tests.unit.attributed import FELL, both, causes_of, spec
from tests.unit.experiments import clean, conditions, result
from tests.unit.spec import NEXT, Case

OFTEN = Case(passed=9, units=40.0)  # what made it a suspect
SECOND = {"gpu": "second"}
CRASHED = ConditionResult(
    status="crashed",
    message="trial 0 raised RuntimeError: an illegal memory access was encountered",
    condition=Condition(label="on a second GPU", gpu="second"),
)


RIGHT_THERE, WRONG_THERE = result("AA", **SECOND), result("BB", 0.0, **SECOND)


def asked(folder: Path, places: list[ConditionResult], *cases: Any, passed: float = 1.0) -> list[Cause]:
    def make(run: Any) -> None:
        clean(run, device="cuda", passed=passed)
        conditions(run, "inputs", [result("AA", passed), result("AA", recipe="shared_qkv")], device="cuda")
        conditions(run, "places", places, device="cuda")

    return causes_of(folder, spec(*cases, device="cuda"), make)


@pytest.mark.parametrize(
    ("places", "told"),
    [
        ([result("AA"), WRONG_THERE], True),
        ([result("AA"), CRASHED], True),
        ([result("AA"), RIGHT_THERE], False),
        ([result("AA", 0.0), WRONG_THERE], False),
        ([result("AA"), CRASHED.model_copy(update={"status": "not_run"})], False),
        ([], False),
    ],
    ids=["wrong there", "ended there", "right there", "wrong on both", "in use", "no second GPU"],
)
def test_a_kernel_that_is_right_on_the_current_gpu_alone(
    places: list[ConditionResult], told: bool, tmp_path: Path
) -> None:
    found = asked(tmp_path, places, *both("kernel", OFTEN))
    grades = [(cause.cause, cause.grade) for cause in found if "tensors are on another one" in cause.statement]
    assert grades == ([(MASKED_BY_INPUTS, STRONG)] if told else [])


@pytest.mark.parametrize(
    "cases",
    [both("kernel", OFTEN), (FELL,), (), ((NEXT, "kernel", Case(bits="new")),)],
    ids=["wrong in few trials", "became wrong", "healthy", "other bits"],
)
@pytest.mark.parametrize("second", [WRONG_THERE, CRASHED], ids=["wrong there", "ended there"])
def test_it_explains_nothing_of_what_one_gpu_showed(second: ConditionResult, cases: Any, tmp_path: Path) -> None:
    without = asked(tmp_path / "without", [], *cases)
    beside = asked(tmp_path / "beside", [result("AA"), second], *cases)
    told = [cause for cause in beside if cause.aside]
    assert [cause.cause for cause in told] == [MASKED_BY_INPUTS]
    assert [cause for cause in beside if not cause.aside] == without
    assert not beside[0].aside or not any(cause.wrong for cause in without), "what was asked about comes first"
