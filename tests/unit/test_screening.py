from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.experiments.run import calls_operators, planned
from harness.experiments.screen import MOST_PROFILES, moved, moved_targets
from harness.schema.records import LaunchRecord, Timing
from harness.schema.run_records import RunRecord, Thresholds
from harness.schema.storage import save_record
from harness.worker import protocol
from tests.unit.spec import SEED_ONLY, Case, Spec
from tests.unit.synthetic import write_run

BASE, NEXT = "torch2.1.0-cu121-py311", "torch2.5.0-cu121-py311"


def run_record() -> RunRecord:
    return RunRecord.model_construct(
        baseline=BASE, environments=[BASE, NEXT], thresholds=Thresholds()
    )


def launches(times: dict[tuple[str, str, str], tuple[float, float]], count: int = 3) -> list[LaunchRecord]:
    """`times`: (kernel, target, workload) to its time in either environment."""
    found = []
    for number in range(count):
        for kernel in dict.fromkeys(kernel for kernel, _, _ in times):
            for side, environment in enumerate((BASE, NEXT)):
                timings = [
                    Timing(status="ok", workload=w, target=t, order=0, samples_us=[us[side] * (1 + 0.01 * number)])
                    for (k, t, w), us in times.items()
                    if k == kernel
                ]
                found.append(
                    LaunchRecord(
                        environment=environment, kernel=kernel, device="cpu", key="", index=number, position=0,
                        started_utc="", duration_s=1, status="ok", timings=timings,
                    )
                )  # fmt: skip
    return found


def test_launches_that_overlap_or_lie_close_did_not_move() -> None:
    assert moved([100, 101, 102], [108, 109, 110], 0.05) == 109 / 101
    assert moved([108, 109, 110], [100, 101, 102], 0.05) == 101 / 109
    assert moved([100, 101, 102], [106, 109, 110], 0.05) is None, "the nearest are within the smallest effect"
    assert moved([100, 101, 120], [110, 115, 130], 0.05) is None
    assert moved([100, 101], [200, 201], 0.05) is None, "too few launches to screen by"


def test_nothing_is_profiled_where_nothing_moved() -> None:
    assert moved_targets(run_record(), launches({("k", "math", "seed"): (100.0, 101.0)})) == []


def test_a_reference_is_profiled_once_on_the_workload_that_moved_most() -> None:
    times = {
        ("k", "math", "seed"): (100.0, 200.0),
        ("k", "math", "long"): (100.0, 400.0),
        ("other", "math", "seed"): (100.0, 300.0),
        ("k", protocol.KERNEL, "seed"): (100.0, 50.0),
        ("other", protocol.KERNEL, "seed"): (100.0, 200.0),
    }
    found = moved_targets(run_record(), launches(times))
    assert [(each.kernel, each.target, each.workload) for each in found] == [
        ("k", "math", "long"), ("k", protocol.KERNEL, "seed"), ("other", protocol.KERNEL, "seed"),
    ]  # fmt: skip
    assert found[0].environments == (BASE, NEXT) and found[0].ratio == 4.0
    assert [cell.environment for cell in found[0].cells] == [BASE, NEXT]


def test_the_targets_that_moved_most_are_profiled() -> None:
    times = {("k", f"t{number}", "seed"): (100.0, 120.0 + number) for number in range(MOST_PROFILES + 2)}
    found = moved_targets(run_record(), launches(times))
    assert [each.target for each in found] == [f"t{n}" for n in range(MOST_PROFILES + 1, 1, -1)]


BECAME_WRONG = Case(passed=0, units=400.0, bits="new")


@pytest.mark.parametrize(("own", "wanted"), [(True, [("attention_scalar", "kernel", (BASE, NEXT))]), (False, [])])
def test_an_extension_of_its_own_that_became_wrong_is_profiled(own: bool, wanted: Any, tmp_path: Path) -> None:
    made = Spec(cases={(NEXT, "kernel", "seed-fp16"): BECAME_WRONG}, launches=1, own_binding=own, **SEED_ONLY)
    run = write_run(tmp_path, made)
    found = calls_operators(run, planned(run).cases)
    assert [(each.kernel, each.target, each.environments) for each in found] == wanted


@pytest.mark.parametrize(
    ("problem", "case", "wanted"),
    [
        ("problem.py", Case(passed=0, units=400.0, bits="new"), [("attention_scalar", "kernel", (BASE, NEXT))]),
        (None, Case(passed=0, units=400.0, bits="new"), []),
        ("problem.py", Case(status="crashed", message="it ended"), [("attention_scalar", "kernel", (BASE, NEXT))]),
        (None, Case(status="crashed", message="it ended"), []),
        ("problem.py", Case(repeats_differ=3), []),  # a suspect, and as right as before
    ],
)
def test_a_python_kernel_that_became_wrong_or_ends_is_profiled(
    problem: str | None, case: Case, wanted: Any, tmp_path: Path
) -> None:
    run = write_run(tmp_path, Spec(cases={(NEXT, "kernel", "seed-fp16"): case}, launches=1, **SEED_ONLY))
    record = run.load()
    workloads = [workload.model_copy(update={"problem": problem}) for workload in record.workloads]
    save_record(run.run_path(), record.model_copy(update={"workloads": workloads}))
    cases = planned(run).cases
    assert cases
    assert [(each.kernel, each.target, each.environments) for each in calls_operators(run, cases)] == wanted
