"""What a bisection is about: an ordinary matrix of two environments that differ in PyTorch's version alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.config.matrix import Matrix, load_matrix, matrix_text, parse_matrix
from harness.config.operators import OperatorEntry
from harness.config.plan import Facts, Plan
from harness.config.planner import plan_run
from harness.errors import InputError
from harness.schema.bisection_records import Aspect
from harness.search.bisect.observe import name_cells
from harness.search.bisect.subject import BisectSubject, choose_target, derive_matrix, environment_of
from harness.worker import protocol

FACTS = Facts(executor="venv", executor_reason="test", threads=2)
SUBJECT = BisectSubject(good="2.1.0", bad="2.5.0", what=Aspect.CORRECTNESS)
OPERATORS = [
    {"operator": "torch.topk", "shapes": [[8, 64]], "arguments": {"k": 4}, "backward": True},
    {"operator": "torch.sort", "shapes": [[8, 64]]},
]


@pytest.fixture
def shipped(root: Path) -> Matrix:
    return load_matrix(root / "matrix.yaml")[0]


def derive(matrix: Matrix, subject: BisectSubject) -> Matrix:
    return derive_matrix(matrix, choose_target(subject, matrix, {}), ["2.1.0", "2.3.1"])


def plan(matrix: Matrix, subject: BisectSubject, gpus: int = 0) -> Plan:
    chosen = choose_target(subject, matrix, {})
    return plan_run(derive(matrix, subject), chosen.selection, replace(FACTS, gpus=gpus))


def cells_of(matrix: Matrix, subject: BisectSubject) -> list[str]:
    made, target = plan(matrix, subject), choose_target(subject, matrix, {}).target
    return list(name_cells(made.cells, made.kernels, made.baseline, target))


def test_two_environments_differ_in_nothing_but_the_version(shipped: Matrix) -> None:
    matrix = derive(shipped, SUBJECT)
    good, other = matrix.environments
    assert other == good.model_copy(update={"torch": "2.3.1"}) and matrix.is_baseline(good)
    assert environment_of(shipped, "2.5.0", "2.1.0") in shipped.environments, "what exists is used"
    # Where matrix.yaml does not name the good version, the others are like its baseline.
    assert environment_of(shipped, "2.3.1", "2.2.0").python == shipped.baseline_environment.python
    twice = shipped.environments[0].model_copy(update={"replica": 1})
    assert environment_of(shipped.model_copy(update={"environments": [twice]}), "2.3.1", "2.1.0").replica == 0
    host = shipped.environments[0].model_copy(update={"torch": "host"})
    with pytest.raises(InputError, match="pins no environment"):
        environment_of(shipped.model_copy(update={"environments": [host]}), "2.3.1", "2.1.0")


@pytest.mark.parametrize(
    ("workloads", "cells"),
    [
        ((), ["topk-fp32/cpu", "topk.backward-fp32/cpu", "sort-fp32/cpu"]),
        (("topk",), ["topk-fp32/cpu", "topk.backward-fp32/cpu"]),
        (("topk.backward-fp32",), ["topk.backward-fp32/cpu"]),
    ],
)
def test_an_operator_is_asked_by_its_name_or_by_one_of_its_workloads(
    workloads: tuple[str, ...], cells: list[str], shipped: Matrix
) -> None:
    matrix = shipped.model_copy(update={"kernels": [], "operators": list(map(OperatorEntry.model_validate, OPERATORS))})
    subject = replace(SUBJECT, workloads=workloads)
    assert choose_target(subject, matrix, {}).target == protocol.MODEL and cells_of(matrix, subject) == cells


def test_a_derived_matrix_can_be_written_and_read(shipped: Matrix) -> None:
    for matrix in (derive(shipped, SUBJECT), derive(shipped, replace(SUBJECT, target="math"))):
        assert parse_matrix(matrix_text(matrix)) == matrix


@pytest.mark.parametrize(
    ("changes", "trials", "replicates"),
    [({}, (100, 10), 1), ({"trials": 7}, (7, 10), 1), ({"what": Aspect.LATENCY}, (2, 0), 12)],
)
def test_a_look_has_the_trials_that_are_asked_for_and_times_need_none(
    shipped: Matrix, changes: dict[str, Any], trials: tuple[int, int], replicates: int
) -> None:
    matrix = derive(shipped, replace(SUBJECT, **changes))
    assert (matrix.workloads[0].trials, matrix.workloads[0].extra_trials) == trials and matrix.launches == replicates


def test_sources_of_other_devices_are_not_compiled_in_every_version(shipped: Matrix) -> None:
    assert {build.device for build in plan(shipped, SUBJECT).builds} == {"cpu"}
    both = replace(SUBJECT, devices=("cpu", "cuda"))
    assert {build.device for build in plan(shipped, both, gpus=1).builds} == {"cpu", "cuda"}


def test_a_kernel_s_cells_are_named_by_it_and_a_reference_s_are_counted_once(shipped: Matrix) -> None:
    other = shipped.kernels[0].model_copy(update={"name": "other"})
    two = shipped.model_copy(update={"kernels": [*shipped.kernels, other]})
    subject = replace(SUBJECT, workloads=("seed-bf16",))
    kernels = [f"{name}/seed-bf16/cpu" for name in ("attention_scalar", "other")]
    assert cells_of(two, subject) == kernels
    assert cells_of(two, replace(subject, target="math")) == ["seed-bf16/cpu"]
    # A reference is measured beside a kernel that runs that workload, and where it is timed no other one is.
    subject = replace(SUBJECT, target="flash", workloads=("full64-fp16",), devices=("cuda",), what=Aspect.LATENCY)
    matrix = derive(shipped, subject)
    assert [kernel.name for kernel in matrix.kernels] == ["attention"] and matrix.references == ["flash"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"target": "fast"}, "choose from: kernel, flash, math"),
        ({"kernels": ("none",)}, "choose from: attention_scalar, "),
        ({"target": "model"}, "not a reference of what is selected"),
        ({"kernels": ("attention_mma",)}, "runs there on cpu"),
        ({"kernels": ("attention_mma",), "devices": ("cuda",), "workloads": ("full64-fp16",)}, "runs there on cuda"),
    ],
)
def test_what_the_matrix_lacks_is_refused(shipped: Matrix, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        plan(shipped, replace(SUBJECT, **changes))
    assert said in str(caught.value)
