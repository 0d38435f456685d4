from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.experiments.run import calls_operators, planned
from harness.schema.records import CallMemory
from harness.schema.run_records import Thresholds
from harness.schema.storage import save_record
from harness.stats.screen import MOST_PROFILES, Profiled, moved, moved_targets
from harness.worker import protocol
from tests.unit.hand_made import launch, timing
from tests.unit.spec import BASE, NEXT, SEED_ONLY, Case, Spec
from tests.unit.synthetic import run_record, write_run

RUN = replace(run_record(Spec()), baseline=BASE, environments=[BASE, NEXT], thresholds=Thresholds(), quick=False)


def moved_of(times: dict[tuple[str, str, str], tuple[float, float]], *, quick: bool = False) -> list[Profiled]:
    """What moved in three blocks, where `times` are those of (kernel, target, workload) in either environment."""
    found = [
        launch(
            *(
                timing(us[side] * (1 + 0.01 * block), workload=w, target=t)
                for (k, t, w), us in times.items()
                if k == kernel
            ),
            environment=environment,
            kernel=kernel,
            index=block,
        )
        for block in range(3)
        for kernel in dict.fromkeys(kernel for kernel, _, _ in times)
        for side, environment in enumerate((BASE, NEXT))
    ]
    return moved_targets(replace(RUN, quick=quick), found)


def test_launches_that_overlap_or_lie_close_did_not_move() -> None:
    assert moved([100, 101, 102], [108, 109, 110], 0.05) == 109 / 101
    assert moved([108, 109, 110], [100, 101, 102], 0.05) == 101 / 109
    assert moved([100, 101, 102], [106, 109, 110], 0.05) is None, "the nearest are within the smallest effect"
    assert moved([100, 101, 120], [110, 115, 130], 0.05) is None
    assert moved([100, 101], [200, 201], 0.05) is None, "too few launches to screen by"


def test_nothing_is_profiled_where_nothing_moved() -> None:
    assert moved_of({("k", "math", "seed"): (100.0, 101.0)}) == []


def test_a_reference_is_profiled_once_on_the_workload_that_moved_most() -> None:
    times = {
        ("k", "math", "seed"): (100.0, 200.0),
        ("k", "math", "long"): (100.0, 400.0),
        ("other", "math", "seed"): (100.0, 300.0),
        ("k", protocol.KERNEL, "seed"): (100.0, 50.0),
        ("other", protocol.KERNEL, "seed"): (100.0, 200.0),
    }
    found = moved_of(times)
    assert [(each.kernel, each.target, each.workload) for each in found] == [
        ("k", "math", "long"),
        ("k", protocol.KERNEL, "seed"),
        ("other", protocol.KERNEL, "seed"),
    ]
    assert found[0].environments == (BASE, NEXT) and found[0].ratio == 4.0
    assert [cell.environment for cell in found[0].cells] == [BASE, NEXT]
    assert [each.target for each in moved_of(times, quick=True)] == [protocol.KERNEL] * 2


def test_the_targets_that_moved_most_are_profiled() -> None:
    times = {("k", f"t{number}", "seed"): (100.0, 120.0 + number) for number in range(MOST_PROFILES + 2)}
    found = moved_of(times)
    assert [each.target for each in found] == [f"t{n}" for n in range(MOST_PROFILES + 1, 1, -1)]


def test_a_target_whose_memory_moved_is_profiled_though_its_time_stayed() -> None:
    def of(peaks: tuple[int, int]) -> list[float]:
        found = [
            launch(
                timing(100.0, memory=CallMemory(peak_bytes=peaks[side] + block, kept_bytes=0)),
                environment=environment,
                kernel="k",
                index=block,
            )
            for block in range(3)
            for side, environment in enumerate((BASE, NEXT))
        ]
        return [each.ratio for each in moved_targets(RUN, found)]

    assert of((10 << 20, 20 << 20)) == [pytest.approx(2.0)]
    assert of((10 << 10, 20 << 10)) == [], "of so little memory no share says anything"


BECAME_WRONG, ENDS = Case(passed=0, units=400.0, bits="new"), Case(status="crashed", message="it ended")
PROFILED = [("attention_scalar", "kernel", (BASE, NEXT))]


@pytest.mark.parametrize(
    ("problem", "own", "case", "wanted"),
    [
        (None, True, BECAME_WRONG, PROFILED),
        (None, False, BECAME_WRONG, []),
        ("problem.py", False, BECAME_WRONG, PROFILED),
        ("problem.py", False, ENDS, PROFILED),
        (None, False, ENDS, []),
        ("problem.py", False, Case(repeats_differ=3), []),  # a suspect, and as right as before
    ],
)
def test_a_python_kernel_or_an_extension_of_its_own_that_became_wrong_or_ends_is_profiled(
    problem: str | None, own: bool, case: Case, wanted: Any, tmp_path: Path
) -> None:
    run = write_run(
        tmp_path, Spec(cases={(NEXT, "kernel", "seed-fp16"): case}, launches=1, own_binding=own, **SEED_ONLY)
    )
    record = run.load()
    workloads = [replace(workload, problem=problem) for workload in record.workloads]
    save_record(run.run_path(), replace(record, workloads=workloads))
    cases = planned(run).cases
    assert cases
    assert [(each.kernel, each.target, each.environments) for each in calls_operators(run, cases)] == wanted
