"""Kernels that are right on one GPU of a machine, and not on another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.experiments.records import Condition, ConditionResult
from reports.causes.model import MASKED_BY_INPUTS, STRONG
from tests.unit.attributed import both, causes_of, spec
from tests.unit.experiments import clean, conditions, result
from tests.unit.spec import Case

OFTEN = Case(passed=9, units=40.0)  # what made it a suspect
SECOND = {"gpu": "second"}
CRASHED = ConditionResult(
    status="crashed",
    message="trial 0 raised RuntimeError: an illegal memory access was encountered",
    condition=Condition(label="on a second GPU", gpu="second"),
)


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ([result("AA"), result("BB", 0.0, **SECOND)], True),
        ([result("AA"), CRASHED], True),
        ([result("AA"), result("AA", **SECOND)], False),
        ([result("AA", 0.0), result("BB", 0.0, **SECOND)], False),
        ([result("AA"), CRASHED.model_copy(update={"status": "not_run"})], False),
        ([result("AA")], False),
    ],
    ids=["wrong there", "ended there", "right there", "wrong on both", "in use", "not asked"],
)
def test_a_kernel_that_is_right_on_the_current_gpu_alone(
    inputs: list[ConditionResult], told: bool, tmp_path: Path
) -> None:
    def make(run: Any) -> None:
        clean(run, device="cuda")
        conditions(run, "inputs", inputs, device="cuda")

    found = causes_of(tmp_path, spec(*both("kernel", OFTEN), device="cuda"), make)
    grades = [
        (part.cause, part.grade)
        for cause in found
        for part in (cause, *cause.parts)
        if "tensors are on another one" in part.statement
    ]
    assert grades == ([(MASKED_BY_INPUTS, STRONG)] if told else [])
