from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.config.environments import PYPI
from harness.config.matrix import Matrix, load_matrix, parse_matrix
from harness.config.plan import Facts
from harness.config.planner import interleave, kernel_sources, plan_run
from harness.errors import InputError
from harness.schema.run_records import Selection
from tests.unit.test_matrix import SMALL

FACTS = Facts(executor="venv", executor_reason="test", threads=2)


@pytest.fixture
def shipped(root: Path) -> Matrix:
    return load_matrix(root / "matrix.yaml")[0]


def test_every_environment_kernel_and_workload_is_a_cell(shipped: Matrix) -> None:
    plan = plan_run(shipped, Selection(), FACTS)
    expected = 2 * sum(len(w.dtypes.cpu) for w in shipped.workloads)
    assert len(plan.cells) == len({c.id for c in plan.cells}) == expected
    assert plan.cells[0].id == "torch2.1.0-cu121-py311/attention_scalar/seed-fp32/cpu"


def test_cuda_cells_need_a_gpu_but_cuda_sources_are_compiled_without_one(shipped: Matrix) -> None:
    without = plan_run(shipped, Selection(), FACTS)
    assert {c.device for c in without.cells} == {"cpu"}
    assert [(b.kernel, b.device, b.runnable) for b in without.builds if b.environment == without.baseline] == [
        ("attention_scalar", "cpu", True),
        *((kernel.name, "cuda", False) for kernel in shipped.kernels),
    ]
    quick = plan_run(shipped, Selection(quick=True), FACTS)
    assert {(b.kernel, b.device) for b in quick.builds} == {("attention_scalar", "cpu")}
    with_gpu = plan_run(shipped, Selection(), replace(FACTS, gpus=1))
    assert {c.device for c in with_gpu.cells} == {"cpu", "cuda"}
    assert all(b.runnable for b in with_gpu.builds)
    only = plan_run(shipped, Selection(devices=("cuda",)), replace(FACTS, gpus=1))
    assert {c.device for c in only.cells} == {"cuda"}


def test_an_environment_s_own_threads_are_planned() -> None:
    own = '{variables: {OMP_NUM_THREADS: "1"}, torch: "2.5.0"'
    plan = plan_run(parse_matrix(SMALL.replace('{torch: "2.5.0"', own)), Selection(), FACTS)
    first, second = (environment.id for environment in plan.environments)
    assert (plan.threads_in(first), plan.threads_in(second)) == (2, 1)
    assert plan.variables == {first: {}, second: {"OMP_NUM_THREADS": "1"}}


def test_the_same_arguments_give_the_same_plan_and_another_selection_another(shipped: Matrix) -> None:
    """What else makes another: tests/unit/test_keys.py."""
    plan = plan_run(shipped, Selection(), FACTS)
    assert plan == plan_run(shipped, Selection(), FACTS)
    others = [{"quick": True}, {"launches": 3}, {"trials": 1}, {"workloads": ("seed",)}, {"devices": ("cuda",)}]
    facts = replace(FACTS, gpus=1)
    digests = {plan.digest, *(plan_run(shipped, Selection(**other), facts).digest for other in others)}  # type: ignore[arg-type]
    assert len(digests) == 1 + len(others)


def test_a_fallback_is_another_environment_and_is_listed(shipped: Matrix) -> None:
    indexes = {e.id(): PYPI for e in shipped.environments}
    reasons = {e.id(): "it answered 403" for e in shipped.environments}
    plan = plan_run(shipped, Selection(), replace(FACTS, indexes=indexes, index_reasons=reasons))
    assert [e.id for e in plan.environments] == ["torch2.1.0-pypi-py311", "torch2.5.0-pypi-py311"]
    assert plan.baseline == "torch2.1.0-pypi-py311"
    assert [(f.subject, f.got, f.reason) for f in plan.fallbacks] == [
        (id, PYPI, "it answered 403") for id in ("torch2.1.0-pypi-py311", "torch2.5.0-pypi-py311")
    ]
    assert not plan_run(shipped, Selection(), FACTS).fallbacks
    slow = replace(FACTS, indexes=indexes, index_reasons=dict.fromkeys(reasons, "it did not answer in time"))
    assert plan_run(shipped, Selection(), slow).digest == plan.digest, "the same wheels are the same run"


def test_eval_measures_one_environment_and_keeps_the_baseline_beside_it(shipped: Matrix) -> None:
    plan = plan_run(shipped, Selection(mode="eval", torch="2.5.0"), FACTS)
    assert plan.measured == ("torch2.5.0-cu121-py311",)
    assert {e.id for e in plan.environments} == {"torch2.1.0-cu121-py311", "torch2.5.0-cu121-py311"}
    assert {launch.environment for launch in plan.launches} == {"torch2.5.0-cu121-py311"}
    baseline = plan_run(shipped, Selection(mode="eval", torch="2.1.0"), FACTS)
    assert [e.id for e in baseline.environments] == ["torch2.1.0-cu121-py311"]


@pytest.mark.parametrize(
    "selection", [Selection(kernels=("none",)), Selection(workloads=("none",)), Selection(torch="9.9.9", mode="eval")]
)
def test_a_selection_of_what_is_not_there_names_what_is(shipped: Matrix, selection: Selection) -> None:
    with pytest.raises(InputError, match=r"not in matrix.yaml") as caught:
        plan_run(shipped, selection, FACTS)
    assert "choose from" in caught.value.remedy
    with pytest.raises(InputError, match="nothing to measure"):
        plan_run(parse_matrix(SMALL), Selection(devices=("cuda",)), replace(FACTS, gpus=1))


def test_a_workload_is_picked_by_name_or_by_id(shipped: Matrix) -> None:
    by_name = plan_run(shipped, Selection(workloads=("seed",)), FACTS)
    by_id = plan_run(shipped, Selection(workloads=("seed-fp16", "long")), FACTS)
    assert {c.workload for c in by_name.cells} == {"seed-fp32", "seed-fp16", "seed-bf16"}
    assert {c.workload for c in by_id.cells} == {"seed-fp16", "long-fp32"}


def test_more_launches_than_planned_are_made_only_where_environments_are_compared_and_none_were_asked_for() -> None:
    matrix = parse_matrix(SMALL)
    said = matrix.model_copy(update={"launches": 3, "most_launches": 7})
    for asked, selection, counts in (
        (matrix, Selection(), (10, 40)),
        (said, Selection(), (3, 7)),
        (matrix, Selection(quick=True), (3, 3)),
        (matrix, Selection(launches=6), (6, 6)),
        (matrix, Selection(mode="eval", torch="2.5.0"), (10, 10)),
    ):
        plan = plan_run(asked, selection, FACTS)
        assert (plan.launches_each, plan.most_launches) == counts
        assert max(launch.index for launch in (*plan.launches, *plan.more_launches)) + 1 == plan.most_launches


def test_what_is_planned_does_not_depend_on_how_many_launches_there_may_be() -> None:
    few, many = (
        plan_run(parse_matrix(SMALL).model_copy(update={"most_launches": most}), Selection(), FACTS)
        for most in (10, 40)
    )
    assert few.launches == many.launches and not few.more_launches
    assert [launch.position for launch in (*many.launches, *many.more_launches)] == list(range(4 * len(few.launches)))
    assert few.digest != many.digest


def test_quick_takes_fewer_trials_and_launches_of_every_cell(shipped: Matrix) -> None:
    full, quick = plan_run(shipped, Selection(), FACTS), plan_run(shipped, Selection(quick=True), FACTS)
    assert full.cells == quick.cells
    assert len(quick.launches) < len(full.launches)
    assert (full.thresholds.min_effect("cpu"), quick.thresholds.min_effect("cpu")) == (0.05, 0.3)
    assert sum(quick.workload("seed-fp16").trials.values()) < sum(full.workload("seed-fp16").trials.values())


@given(count=st.integers(1, 5), each=st.integers(1, 12), seed=st.integers(0, 2**32))
def test_blocks_hold_everything_once_in_a_recorded_order(count: int, each: int, seed: int) -> None:
    keys = [(f"environment{i}", "kernel", "cpu") for i in range(count)]
    launches = interleave(keys, each, seed)  # type: ignore[arg-type]
    assert launches == interleave(keys, each, seed)  # type: ignore[arg-type]
    assert [launch.position for launch in launches] == list(range(count * each))
    assert Counter((x.environment, x.index) for x in launches) == Counter((k[0], i) for k in keys for i in range(each))
    assert all(launches[i].index <= launches[i + 1].index for i in range(len(launches) - 1))


def test_a_folder_is_a_kernel() -> None:
    kernel = parse_matrix(SMALL.replace("sources: {cpu: [mine.cpp]}", "folder: mine")).kernels[0]
    files = {"mine": ["mine/a.cu", "mine/a_cpu.cpp", "mine/a.h", "mine/README"]}
    assert kernel_sources(kernel, files) == {"cuda": ["mine/a.cu"], "cpu": ["mine/a_cpu.cpp"]}
    own = kernel.model_copy(update={"binding": "own"})
    assert kernel_sources(own, files) == {"cuda": ["mine/a.cu", "mine/a_cpu.cpp"]}
    with pytest.raises(InputError, match=r"no \.cpp or \.cu"):
        kernel_sources(kernel, {"mine": ["mine/README"]})


def test_a_problem_file_is_its_own_workload() -> None:
    text = SMALL.replace("sources: {cpu: [mine.cpp]}", "problem: p/softmax.py, model_new: p/fast.py")
    plan = plan_run(parse_matrix(text), Selection(), FACTS)
    assert {c.workload for c in plan.cells} == {"mine"}
    assert plan.kernel("mine").references == ["model"]
    # What a launch asks of a kernel's answers needs one trial that is timed, and three that are new.
    quick = plan_run(parse_matrix(text), Selection(quick=True), FACTS)
    assert quick.workload("mine").trials == {"independent": 4}
    # KernelBench's absolute tolerance would pass a softmax of zeros: the truth's own scale decides, more loosely.
    limits = plan.tolerances.limits(plan.workload("mine").dtype)
    assert plan.tolerances.decides == "rounding" and limits["rounding"] == 4.0


@pytest.mark.parametrize(
    ("kernel", "selection", "problem", "remedy"),
    [
        (
            "cpu: [mine.cpp]",
            {"devices": ("cuda",)},
            "nothing to measure on cuda: these have neither sources nor devices for it: mine",
            "--device cpu",
        ),
        ("cuda: [mine.cu]", {"devices": ("cpu",)}, "nothing to measure on cpu", "--device cuda"),
        ("cuda: [mine.cu]", {"devices": ("cuda",)}, "no workload has dtypes for cuda", "dtypes: {cuda: [float32]}"),
    ],
)
def test_where_nothing_is_left_it_says_why(kernel: str, selection: dict[str, Any], problem: str, remedy: str) -> None:
    text = (
        f"kernels: [{{name: mine, sources: {{{kernel}}}}}]\n"
        "workloads: [{name: w, shape: {batch: 1, heads: 1, seq_len: 8, head_dim: 64}, dtypes: {cpu: [float32]}}]\n"
    )
    with pytest.raises(InputError) as caught:
        plan_run(parse_matrix(text), Selection(**selection), FACTS)
    assert problem in caught.value.message and remedy in caught.value.remedy
