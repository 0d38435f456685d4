"""Which launches a run goes on with, and where it stops: launches are made here as the plan asks for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.config.plan import Plan, PlannedLaunch
from harness.run.extend import further, rows_of, times_of
from harness.schema.records import LaunchRecord, TargetTiming
from harness.stats.medians import COLD
from reports.load.evidence import load_evidence
from reports.render.report import Report
from tests.unit.spec import Case, Spec
from tests.unit.synthetic import write_run
from tests.unit.worlds import A, B, made_plan, matrix_value

Time = Callable[[PlannedLaunch, str], float]


def plan_of(**changes: object) -> Plan:
    value = {**matrix_value(), "launches": 10, "thresholds": {"min_effect_cpu": 0.01}, **changes}
    value["kernels"] = [value["kernels"][0], {**value["kernels"][0], "name": "other"}]
    value["references"] = ["flash"]
    return made_plan(value, devices=("cpu",))[0]


def noisy(spreads: dict[str, float], ratios: dict[str, float] | None = None, seed: int = 0) -> Time:
    """Times of kernels, by kernel, and of references, in the second environment by so much slower."""

    def time(launch: PlannedLaunch, target: str) -> float:
        name = launch.kernel if target == "kernel" else target
        generator = np.random.default_rng([seed, launch.position, len(target)])
        slower = (ratios or {}).get(name, 1.0) if launch.environment == B else 1.0
        return float(100 * slower * np.exp(generator.normal(0, spreads.get(name, 1e-4))))

    return time


def made(launch: PlannedLaunch, time: Time) -> LaunchRecord:
    timings = [
        TargetTiming(workload="first-fp32", target=target, order=0, status="ok", samples_us=[time(launch, target)])
        for target in ("kernel", "flash")
        if launch.rows is None or ("first-fp32", target) in launch.rows
    ]
    return LaunchRecord(
        environment=launch.environment,
        kernel=launch.kernel,
        device=launch.device,
        key="",
        index=launch.index,
        position=launch.position,
        started_utc="",
        duration_s=1.0,
        status="ok",
        timings=timings,
    )


def run(plan: Plan, time: Time) -> tuple[list[LaunchRecord], list[set[str]]]:
    """All launches that a run makes, and the kernels of each time that it went on."""
    launches, went_on = [made(each, time) for each in plan.launches], []
    while due := further(plan, launches):
        launches += [made(each, time) for each in due]
        went_on.append({each.kernel for each in due})
    return launches, went_on


def count(launches: list[LaunchRecord], kernel: str) -> int:
    counts = {sum((each.environment, each.kernel) == (name, kernel) for each in launches) for name in (A, B)}
    assert len(counts) == 1, "all environments together"
    return counts.pop()


def test_a_run_that_is_decided_ends_with_the_launches_that_were_planned() -> None:
    launches, went_on = run(plan_of(), noisy({}))
    assert went_on == [] and count(launches, "plain") == 10


def test_only_the_kernel_with_undecided_rows_goes_on_until_it_is_decided_or_the_limit_is_reached() -> None:
    launches, went_on = run(plan_of(), noisy({"plain": 0.012}))
    assert went_on and all(kernels == {"plain"} for kernels in went_on)
    assert 10 < count(launches, "plain") <= 40 and count(launches, "other") == 10


def test_a_backward_pass_goes_on_by_itself() -> None:
    plan = plan_of(workloads=[{**matrix_value()["workloads"][0], "backward": True}])
    target, workload = "flash.backward", "first.backward-fp32"
    times = {(name, "plain", "cpu", workload, target, COLD): {0: 100.0} for name in (A, B)}
    assert [row.subject for row in rows_of(plan, times)] == [("plain", "cpu", workload, target)]


def test_a_reference_goes_on_with_the_first_kernel_that_has_it() -> None:
    launches, went_on = run(plan_of(), noisy({"flash": 0.012}))
    assert went_on and set().union(*went_on) == {"plain"} and count(launches, "other") == 10


def test_launches_beyond_the_planned_ones_measure_what_is_undecided_alone() -> None:
    launches, went_on = run(plan_of(), noisy({"flash": 0.012}))
    assert went_on and {t.target for each in launches for t in each.timings if each.index >= 10} == {"flash"}


def test_what_no_number_of_launches_up_to_the_limit_could_decide_is_not_launched_for() -> None:
    assert run(plan_of(), noisy({"plain": 0.2}, seed=1))[1] == []


def test_a_large_change_is_called_and_needs_no_more() -> None:
    assert run(plan_of(), noisy({"plain": 0.012}, {"plain": 1.5}))[1] == []


def test_the_limit_holds() -> None:
    launches, went_on = run(plan_of(most_launches=12), noisy({"plain": 0.011}))
    assert count(launches, "plain") == 12 and went_on == [{"plain"}]
    assert run(plan_of(most_launches=10), noisy({"plain": 0.011}))[1] == []


@pytest.mark.parametrize("kept", [1, 7, 12, 23])
def test_a_run_that_was_interrupted_goes_on_as_it_would_have(kept: int) -> None:
    plan, time = plan_of(), noisy({"plain": 0.012, "other": 0.011})
    whole, _ = run(plan, time)
    launches = whole[: len(plan.launches) + kept]
    while due := further(plan, launches):
        launches += [made(each, time) for each in due]
    assert {(each.environment, each.kernel, each.index) for each in launches} == {
        (each.environment, each.kernel, each.index) for each in whole
    }
    assert further(plan, launches) == [], "a run that ended stays ended"


def test_a_kernel_without_times_is_not_launched_for() -> None:
    plan = plan_of()
    launches = [replace(made(each, noisy({"plain": 0.012})), timings=[]) for each in plan.launches]
    assert further(plan, launches) == []


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_rows_are_those_of_the_report(tmp_path: Path, device: str) -> None:
    """Two kernels that share references, one of which only the second has in both environments."""
    cases = {(B, "math", "*"): Case(status="unsupported")}
    written = write_run(tmp_path, Spec(kernels=("one", "two"), device=device, cases=cases))  # type: ignore[arg-type]
    record, rows = written.load(), Report(load_evidence(tmp_path)).rows

    class Planned:
        baseline, cells = record.baseline, record.cells
        measured = tuple(record.environments)

        @staticmethod
        def kernel(name: str) -> object:
            return next(kernel for kernel in record.kernels if kernel.name == name)

    found = list(rows_of(Planned(), times_of(written.launches())))  # type: ignore[arg-type]
    assert sorted(row.before(99) for row in found) == sorted(
        (timed.baseline.medians_us, timed.this.medians_us) for row in rows for timed in row.timed if timed.ratio
    )
