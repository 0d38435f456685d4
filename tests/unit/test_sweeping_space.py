"""What may be searched: matrix.yaml's `search`, the matrices made of it, and a winner written back."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from harness.cli.options import duration_s
from harness.config.matrix import Matrix, load_matrix, parse_matrix
from harness.config.planner import plan_run
from harness.errors import InputError
from harness.schema.records import Device
from harness.search.sweep.space import (
    Subject,
    all_settings,
    choose_device,
    derived_matrix,
    incumbent_of,
    key_of,
    searched_kernel,
    selection_of,
    variant,
)
from harness.search.sweep.write import with_setting
from tests.unit.test_bisecting_subject import FACTS
from tests.unit.test_matrix import SMALL, refusal

KERNEL = "  - {name: mine, sources: {cpu: [mine.cpp]}}"
MANY = list(range(400))
ALL = ["sm_80", "sm_89", "sm_90", "sm_90a"]
TUNED = "  - {name: mine, sources: {cpu: [mine.cpp]}, tunables: {A: 1, B: x}, search: {A: [1, 2], B: [x, y]}}"


@pytest.fixture
def shipped(root: Path) -> Matrix:
    return load_matrix(root / "matrix.yaml")[0]


@pytest.fixture
def subject(shipped: Matrix) -> Subject:
    return Subject(kernel=shipped.kernels[0], workloads=("tail239",), device="cpu")


def test_the_shipped_kernel_can_be_searched_over_all_its_settings(shipped: Matrix) -> None:
    kernel = searched_kernel(shipped, "attention_scalar")
    settings = list(all_settings(kernel.search))
    assert kernel.settings == len(settings) == len(set(map(key_of, settings))) == 108
    assert incumbent_of(kernel) in settings


@pytest.mark.parametrize(
    ("tunables", "said"),
    [
        ("tunables: {A: 1}, search: {B: [1, 2]}", "search.B: is none of the kernel's tunables (A)"),
        ("search: {A: [1, 2]}", "none of the kernel's tunables (there are none)"),
        ("tunables: {A: 1}, search: {A: [2, 3]}", "search.A: lacks 1, its value in tunables"),
        ("tunables: {A: 1}, search: {A: []}", "search.A: lacks 1"),
        ("tunables: {A: 1}, search: {A: [1, 2, 2]}", "search.A: 2 stands twice"),
        ("tunables: {A: 1}, search: {A: 1}", "search.A: expected a list, got 1"),
        ("tunables: {A: 1}, search: {A: [1, true]}", "search.A[1]"),
        ("tunables: {A: 1}, search: {a: [1, 2]}", "search"),
        (f"tunables: {{A: 0, B: 0}}, search: {{A: {MANY}, B: {MANY}}}", "160000 settings, at most 100000"),
    ],
)
def test_a_search_that_makes_no_sense_is_refused_with_its_place(tunables: str, said: str) -> None:
    text = SMALL.replace(KERNEL, KERNEL[:-1] + f", {tunables}}}")
    message = refusal(text)
    assert said in message and "kernels[0]" in message


def test_a_kernel_without_a_search_is_refused_with_an_example() -> None:
    with pytest.raises(InputError, match="names no values to search") as caught:
        searched_kernel(parse_matrix(SMALL), "mine")
    assert "search: {BLOCK_M: [16, 32, 64]}" in caught.value.remedy
    with pytest.raises(InputError, match="--kernel other: not in matrix"):
        searched_kernel(parse_matrix(SMALL), "other")


def test_a_variant_is_named_by_its_setting_alone_and_the_incumbent_keeps_its_name(shipped: Matrix) -> None:
    kernel = shipped.kernels[0]
    setting = {**incumbent_of(kernel), "BLOCK_M": 64}
    made = variant(kernel, setting)
    assert made.name.startswith("attention_scalar.") and made.tunables == {**kernel.tunables, "BLOCK_M": 64}
    assert not made.search and variant(kernel, dict(reversed(setting.items()))).name == made.name
    assert variant(kernel, incumbent_of(kernel)).name == "attention_scalar"
    long = kernel.model_copy(update={"name": "a" * 64})
    assert len(variant(long, setting).name) == 64


def test_a_derived_matrix_holds_incumbent_and_settings_in_every_environment(shipped: Matrix, subject: Subject) -> None:
    settings = list(all_settings(subject.kernel.search))[:2]
    matrix = derived_matrix(shipped, subject, settings, "search")
    plan = plan_run(matrix, selection_of(subject), FACTS)
    assert len(plan.kernels) == 3 and plan.kernels[0].name == "attention_scalar"
    assert {build.device for build in plan.builds} == {"cpu"}
    assert {cell.workload for cell in plan.cells} == {"tail239-fp32"} and len(plan.cells) == 3 * 2
    assert len(plan.launches) == 3 * 2, "one launch of each in every environment"
    assert all(trials <= 5 for workload in plan.workloads for trials in workload.trials.values())


def test_what_confirms_has_other_inputs_all_trials_and_launches_of_its_own(shipped: Matrix, subject: Subject) -> None:
    settings = list(all_settings(subject.kernel.search))[:1]
    few = shipped.model_copy(update={"launches": 6})  # as many as the finals have
    final, confirm = (
        plan_run(derived_matrix(few, subject, settings, phase), selection_of(subject), FACTS)  # type: ignore[arg-type]
        for phase in ("final", "confirm")
    )
    assert final.launches_each == confirm.launches_each == 6
    assert final.digest != confirm.digest, "its launches would be those by which it was chosen"
    assert final.seed != confirm.seed and confirm.workloads[0].trials["independent"] == 20
    three = shipped.model_copy(update={"launches": 3})
    assert derived_matrix(three, subject, settings, "confirm").launches == 4, "three support no interval"


@pytest.mark.parametrize(
    ("capability", "compiled"),
    [("90", ["sm_90", "sm_90a"]), ("80", ["sm_80"]), ("", ALL), ("120", ALL)],
)
def test_a_search_compiles_for_the_gpus_here_and_what_confirms_for_all(
    shipped: Matrix, capability: str, compiled: list[str]
) -> None:
    kernel = shipped.kernels[0].model_copy(update={"architectures": ALL})
    subject = Subject(kernel=kernel, workloads=("tail239",), device="cuda", capability=capability)
    for phase, wanted in (("search", compiled), ("final", compiled), ("confirm", ALL)):
        matrix = derived_matrix(shipped, subject, [], phase)  # type: ignore[arg-type]
        assert matrix.kernels[0].architectures == wanted


def test_the_device_is_the_gpu_where_there_is_one_and_a_source_for_it(subject: Subject) -> None:
    both: list[Device] = ["cpu", "cuda"]
    assert [choose_device(subject.kernel, "auto", both, gpus) for gpus in (0, 1)] == both
    assert choose_device(subject.kernel, "auto", ["cpu"], 1) == choose_device(subject.kernel, "cpu", both, 1) == "cpu"
    with pytest.raises(InputError, match="has no source for it"):
        choose_device(subject.kernel, "cuda", ["cpu"], 1)


def test_budgets() -> None:
    assert list(map(duration_s, ("90s", "10m", "2h", "0.5m"))) == [90, 600, 7200, 30]
    for text in ("", "10", "0m", "-1m", "ten m", "1d"):
        with pytest.raises(argparse.ArgumentTypeError, match="is no time such as"):
            duration_s(text)


def test_a_winner_is_written_and_nothing_else_is_touched(root: Path) -> None:
    text = (root / "matrix.yaml").read_text()
    changed = with_setting(text, "attention_scalar", {"BLOCK_M": 64, "REDUCE": "serial", "NUM_WARPS": 8})
    before, after = text.splitlines(), changed.splitlines()
    [line] = [(one, other) for one, other in zip(before, after, strict=True) if one != other]
    assert line[1] == line[0].replace("BLOCK_M: 32", "BLOCK_M: 64").replace("REDUCE: warp", "REDUCE: serial")
    assert with_setting(changed, "attention_scalar", {"BLOCK_M": 32, "REDUCE": "warp"}) == text


def test_a_winner_is_written_into_any_layout_of_the_right_kernel() -> None:
    block = """\
  - name: other
    sources: {cpu: [mine.cpp]}
    tunables: {A: 1, B: x}
    search: {A: [1, 2]}
  # of the seed
  - sources: {cpu: [mine.cpp]}
    tunables:   # measured on Tuesday
      A:   1    # rows
      "B": 'x'
    search:
      A: [1, 2]
      B: [x, 'off', "no: 1"]
    name: mine
"""
    text = SMALL.replace(KERNEL + "\n", block)
    changed = with_setting(text, "mine", {"A": 2, "B": "off"})
    assert changed == text.replace("A:   1    # rows", "A:   2    # rows").replace("\"B\": 'x'", "\"B\": 'off'")
    changed = with_setting(text, "mine", {"B": "no: 1"})
    assert parse_matrix(changed).kernels[1].tunables == {"A": 1, "B": "no: 1"}


def test_a_setting_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(InputError, match="cannot be set in it"):
        with_setting(SMALL.replace(KERNEL, TUNED), "mine", {"C": 1})
