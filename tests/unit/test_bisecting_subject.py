"""What a bisection is about: an ordinary matrix of two environments that differ in PyTorch's version alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.config.matrix import Matrix, load_matrix, matrix_text, parse_matrix
from harness.config.operators import Operator
from harness.config.plan import Facts
from harness.config.planner import plan_run
from harness.errors import InputError
from harness.search.bisect.environments import named_environments
from harness.search.bisect.subject import (
    Subject,
    asked,
    cell_names,
    derived_matrix,
    environment_at,
    environment_of,
    selection_of,
    version_in,
)
from harness.worker import protocol

FACTS = Facts(executor="venv", executor_reason="test", threads=2)
SUBJECT = Subject(good="2.1.0", bad="2.5.0", what="correctness")


@pytest.fixture
def shipped(root: Path) -> Matrix:
    return load_matrix(root / "matrix.yaml")[0]


def derived(matrix: Matrix, subject: Subject, look: int = 0) -> Matrix:
    return derived_matrix(matrix, subject, ["2.1.0", "2.3.1"], look, 20)


def test_two_environments_differ_in_nothing_but_the_version(shipped: Matrix) -> None:
    good, other = derived(shipped, SUBJECT).environments
    assert other == good.model_copy(update={"torch": "2.3.1"})
    assert environment_of(shipped, "2.5.0", "2.1.0") in shipped.environments, "what exists is used"
    # Where matrix.yaml does not name the good version, the others are like its baseline.
    assert environment_of(shipped, "2.3.1", "2.2.0").python == shipped.baseline_environment.python


OPERATORS = [
    {"operator": "torch.topk", "shapes": [[8, 64]], "arguments": {"k": 4}, "backward": True},
    {"operator": "torch.sort", "shapes": [[8, 64]]},
]


@pytest.mark.parametrize(
    ("workloads", "called"),
    [((), ["topk", "sort"]), (("topk",), ["topk"]), (("topk.backward-fp32",), ["topk"]), (("sort-fp32",), ["sort"])],
)
def test_an_operator_is_asked_by_its_name_or_by_one_of_its_workloads(
    workloads: tuple[str, ...], called: list[str], shipped: Matrix
) -> None:
    matrix = shipped.model_copy(update={"kernels": [], "operators": list(map(Operator.model_validate, OPERATORS))})
    subject = asked(replace(SUBJECT, workloads=workloads), matrix)
    assert subject.target == protocol.MODEL
    assert [each.called for each in derived(matrix, subject).operators] == called


def test_a_replica_is_no_version_of_its_own(shipped: Matrix) -> None:
    twice = shipped.environments[0].model_copy(update={"replica": 1})
    assert environment_of(shipped.model_copy(update={"environments": [twice]}), "2.3.1", "2.1.0").replica == 0


def test_a_derived_matrix_can_be_written_and_read(shipped: Matrix) -> None:
    for matrix in (derived(shipped, SUBJECT), derived(shipped, replace(SUBJECT, target="math"), 2)):
        assert parse_matrix(matrix_text(matrix)) == matrix


@pytest.mark.parametrize(
    ("changes", "look", "trials"),
    [
        ({}, 0, (100, 10)),
        ({}, 1, (200, 20)),
        ({}, 2, (400, 40)),
        ({"trials": 7}, 1, (14, 20)),
        ({"what": "latency"}, 0, (2, 0)),
    ],
)
def test_each_look_has_more_trials_and_times_need_none(
    shipped: Matrix, changes: dict[str, Any], look: int, trials: tuple[int, int]
) -> None:
    matrix = derived(shipped, replace(SUBJECT, **changes), look)
    assert (matrix.workloads[0].trials, matrix.workloads[0].extra_trials) == trials and matrix.launches == 20


def test_no_look_has_more_trials_than_matrix_yaml_may_ask_for(shipped: Matrix) -> None:
    many = shipped.workloads[0].model_copy(update={"trials": 9000, "extra_trials": 900})
    most = derived(shipped.model_copy(update={"workloads": [many]}), SUBJECT, 2).workloads[0]
    assert (most.trials, most.extra_trials) == (10_000, 1000)


def test_sources_of_other_devices_are_not_compiled_in_every_version(shipped: Matrix) -> None:
    plan = plan_run(derived(shipped, SUBJECT), selection_of(SUBJECT), FACTS)
    assert {build.device for build in plan.builds} == {"cpu"}
    both = replace(SUBJECT, devices=("cpu", "cuda"))
    plan = plan_run(derived(shipped, both), selection_of(both), replace(FACTS, gpus=1))
    assert {build.device for build in plan.builds} == {"cpu", "cuda"}


def test_a_kernel_s_cells_are_named_by_it_and_a_reference_s_are_counted_once(shipped: Matrix) -> None:
    other = shipped.kernels[0].model_copy(update={"name": "other"})
    two = shipped.model_copy(update={"kernels": [*shipped.kernels, other]})
    subject = replace(SUBJECT, workloads=("seed-bf16",))
    plan = plan_run(derived(two, subject), selection_of(subject), FACTS)
    kernels = [f"{name}/seed-bf16/cpu" for name in ("attention_scalar", "other")]
    assert list(cell_names(plan, plan.baseline, "kernel")) == kernels
    subject = replace(subject, target="math")
    matrix = derived(two, subject)
    assert [kernel.name for kernel in matrix.kernels] == ["attention_scalar"] and matrix.references == ["math"]
    plan = plan_run(matrix, selection_of(subject), FACTS)
    assert cell_names(plan, plan.baseline, "math") == {"seed-bf16/cpu": ("attention_scalar", "seed-bf16", "cpu")}


def test_a_reference_is_measured_beside_a_kernel_that_runs_that_workload(shipped: Matrix) -> None:
    subject = replace(SUBJECT, target="flash", workloads=("full64-fp16",), devices=("cuda",))
    assert [kernel.name for kernel in derived(shipped, subject).kernels] == ["attention"]
    assert derived(shipped, replace(SUBJECT, target="cudnn")).references == ["cudnn"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"target": "fast"}, "choose from: kernel, flash, math"),
        ({"kernels": ("none",)}, "choose from: attention_scalar, "),
        ({"target": "model"}, "no kernel that it is measured beside"),
        ({"kernels": ("attention_mma",)}, "runs there on cpu"),
        ({"kernels": ("attention_mma",), "devices": ("cuda",), "workloads": ("full64-fp16",)}, "runs there on cuda"),
    ],
)
def test_what_the_matrix_lacks_is_refused(shipped: Matrix, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        derived(shipped, replace(SUBJECT, **changes))
    assert said in str(caught.value)


def test_a_matrix_of_the_host_alone_has_nothing_to_bisect(shipped: Matrix) -> None:
    spec = shipped.environments[0].model_copy(update={"torch": "host"})
    host = shipped.model_copy(update={"environments": [spec]})
    with pytest.raises(InputError, match="pins no environment"):
        environment_of(host, "2.3.1", "2.1.0")


def test_environments_that_the_matrix_names_are_known_by_all_their_ids(shipped: Matrix) -> None:
    assert named_environments(shipped) == {
        f"torch{version}-{index}-py311" for version in ("2.1.0", "2.5.0") for index in ("cu121", "pypi")
    }


def test_of_a_package_pytorch_is_held(shipped: Matrix) -> None:
    subject = replace(SUBJECT, good="1.0", bad="3.0", component="demo", held="2.5.0")
    matrix = derived_matrix(shipped, subject, ["1.0", "2.0"], 0, 20)
    good, other = matrix.environments
    assert good.torch == other.torch == "2.5.0" and good.packages == ["demo==1.0"] and other.packages == ["demo==2.0"]
    assert matrix.is_baseline(good) and [version_in(matrix, each, subject) for each in (good, other)] == ["1.0", "2.0"]
    named = shipped.model_copy(update={"environments": [*shipped.environments, other]})
    assert environment_at(named, subject, "2.0") in named.environments
    numpy = replace(subject, component="numpy", good="1.26.4", bad="2.0.0")
    assert environment_at(shipped, numpy, "1.26.4") in shipped.environments, "it has that version by the file's own"
    with pytest.raises(InputError, match=r"--torch 9.9.9: not in matrix.yaml"):
        derived_matrix(shipped, replace(subject, held="9.9.9"), ["1.0", "2.0"], 0, 20)
