from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.config import matrix
from harness.gpu import Reading, Watch
from harness.run.believed import implausible
from harness.run.context import Store
from harness.run.launch import Replicate, timing_request
from harness.run.requests import room_bytes
from harness.run.throttling import watched_launch
from harness.schema.records import LaunchRecord, TargetTiming, ValidationRecord
from harness.schema.storage import Run, from_json_value
from tests.unit.contexts import FakeContext

ASKED = {("seed-fp32", "kernel"), ("seed-fp32", "flash")}


def row(target: str, **changes: Any) -> TargetTiming:
    values = {"workload": "seed-fp32", "target": target, "order": 0, "status": "ok", "samples_us": [100.0, 120.0]}
    return TargetTiming(**{**values, "calls_per_sample": 10, **changes})


def record(*timings: TargetTiming) -> LaunchRecord:
    return LaunchRecord(
        environment="e",
        kernel="k",
        device="cpu",
        key="",
        index=0,
        position=0,
        started_utc="",
        duration_s=2.0,
        status="ok",
        timings=list(timings),
    )


@pytest.mark.parametrize(
    ("timings", "said"),
    [
        ([row("kernel"), row("flash")], ""),
        ([row("kernel"), row("flash", status="unsupported", samples_us=[])], ""),
        ([row("kernel")], "other rows"),
        ([row("kernel"), row("kernel"), row("flash")], "other rows"),
        ([row("kernel"), row("math")], "other rows"),
        ([row("kernel", samples_us=[5e-324]), row("flash")], "less than a nanosecond"),
        ([row("kernel", calls_per_sample=0), row("flash")], "less than a nanosecond"),
        ([row("kernel", samples_us=[3e6], calls_per_sample=1), row("flash")], "took 2 s in all"),
        ([row("kernel", samples_us=[1e308]), row("flash")], "took 2 s in all"),
    ],
)
def test_a_launch_gives_what_was_asked_for_in_the_time_that_passed(timings: list[TargetTiming], said: str) -> None:
    found = implausible(record(*timings), ASKED)
    assert said in found and bool(found) == bool(said)


def cuda_row(target: str = "kernel", **changes: Any) -> TargetTiming:
    values = {"calls_per_sample": 1, "sampled_s": [500.0, 500.5], "enqueue_us": [5.0, 5.0]}
    values |= {"hot_us": [90.0], "hot_sampled_s": [501.0], "hot_calls_per_sample": 11}
    return row(target, **{**values, **changes})


def cuda_record(*timings: TargetTiming) -> LaunchRecord:
    return replace(record(*timings), device="cuda")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ""),
        ({"sampled_s": [500.0]}, "other numbers of samples"),
        ({"enqueue_us": []}, "other numbers of samples"),
        ({"hot_sampled_s": []}, "other numbers of samples"),
        ({"status": "crashed", "enqueue_us": []}, "other numbers of samples"),
        ({"hot_sampled_s": [502.5]}, "2.5 s apart, and took 2 s"),
        ({"hot_us": [1e-5]}, "less than a nanosecond"),
        ({"hot_us": [3e5]}, "took 2 s in all"),
    ],
)
def test_a_gpus_launch_gives_a_moment_for_every_sample_within_its_own_time(changes: dict[str, Any], said: str) -> None:
    found = implausible(cuda_record(cuda_row(**changes), cuda_row("flash")), ASKED)
    assert said in found and bool(found) == bool(said)


def test_what_was_read_of_the_gpu_is_in_the_launch_and_what_it_left_out_is_said() -> None:
    watch = Watch(None)
    watch.readings = [Reading(at_s=499.9 + i * 0.1, sm_mhz=1980, reasons=0x40 if i == 6 else 0) for i in range(13)]
    made = watched_launch(cuda_record(cuda_row()), watch, "GPU-1")
    assert made.gpu is not None and made.gpu.uuid == "GPU-1" and made.gpu.throttle_reasons == ["hw_thermal_slowdown"]
    assert made.timings[0].samples_us == [100.0] and made.timings[0].sampled_s == [0.0]
    assert made.timings[0].hot_sampled_s == [1.0] and made.status == "ok"
    assert made.message == "1 of 3 samples left out: the GPU was throttled (hw_thermal_slowdown)"


def test_without_readings_a_launch_stands_and_its_moments_are_relative() -> None:
    made = watched_launch(cuda_record(cuda_row()), Watch(None), None)
    assert made.gpu is None and made.message == "" and made.timings[0].sampled_s == [0.0, 0.5]


def test_each_device_has_its_own_precision() -> None:
    plan: Any = SimpleNamespace(timing=matrix.TimingRules())
    assert timing_request(plan, "cpu").relative_error == 0.005
    assert timing_request(plan, "cuda").relative_error == 0.003


def test_a_launch_knows_the_first_trials_validated_output() -> None:
    workload = SimpleNamespace(id="w", problem=None, backward=False)
    target = SimpleNamespace(target="kernel", status="ok", output_sha256=list("abcdefghij"))
    validation = SimpleNamespace(status="ok", recipes=[SimpleNamespace(recipe="independent", targets=[target])])
    plan = SimpleNamespace(
        workloads_of=lambda *_: [workload],
        kernel=lambda _: SimpleNamespace(pytorch=False, references_on=lambda _: ["model"]),
    )
    assert launch_of(plan, {"w": validation})._expected() == {"w": ["a"]}


def launch_of(plan: Any, validations: Any, rows: Any = None) -> Replicate:
    context: Any = FakeContext(plan=plan, stores={"w": Store(Path("folder"))}, run=Run(Path("run")))
    planned: Any = SimpleNamespace(environment="e", kernel="k", device="cpu", index=0, position=0, rows=rows)
    return Replicate(context, planned, validations)


STEP, PASS = ("w", "model"), ("w", "model.backward")


@pytest.mark.parametrize(
    ("pytorch", "status", "asked", "rows"),
    [
        (True, "ok", None, [STEP, PASS]),
        (True, "ok", {PASS}, [PASS]),  # a further launch, where the step is decided
        (True, "crashed", None, []),
        (False, "ok", None, [("w", "kernel"), STEP, PASS]),
        (False, "crashed", None, [STEP, PASS]),
    ],
)
def test_backward_is_timed_by_itself_beside_a_step_and_never_of_a_kernel(
    pytorch: bool, status: str, asked: Any, rows: list[tuple[str, str]]
) -> None:
    workload = SimpleNamespace(id="w", problem=None, backward=True)
    info = SimpleNamespace(pytorch=pytorch, references_on=lambda _: ["model"])
    plan = SimpleNamespace(workloads_of=lambda *_: [workload], kernel=lambda _: info)
    assert launch_of(plan, {"w": SimpleNamespace(status=status, recipes=[])}, asked).rows == rows


def validation(status: str, message: str = "", **references: str) -> ValidationRecord:
    targets = [{"target": name, "status": status, "message": f"{name} {status}"} for name, status in references.items()]
    made = {"recipe": "independent", "trials": 1, "input_sha256": [], "truth_sha256": [], "rounding_cost": []}
    recipes = [made | {"targets": targets}] if targets else []
    return from_json_value(
        ValidationRecord,
        {
            "environment": "e",
            "kernel": "k",
            "workload": "w",
            "device": "cpu",
            "key": "",
            "started_utc": "",
            "duration_s": 1,
            "status": status,
            "message": message,
            "decides": "rounding",
            "limits": {},
            "recipes": recipes,
        },
    )


@pytest.mark.parametrize(
    ("pytorch", "known", "rows"),
    [
        (
            False,
            validation("crashed", "the judge exited with 1"),
            {
                "model": ("not_run", "the judge exited with 1"),
                "kernel": ("not_run", "the kernel was not called: in validation it crashed"),
            },
        ),
        (
            False,
            validation("build_failed", "g++ failed", model="unsupported"),
            {
                "model": ("unsupported", "model unsupported"),
                "kernel": ("not_run", "the kernel was not called: in validation it build failed"),
            },
        ),
        (
            True,
            validation("unsupported", "PyTorch has no such operator"),
            {
                "model": ("unsupported", "PyTorch has no such operator"),
            },
        ),
    ],
)
def test_where_nothing_can_run_no_process_is_started_and_the_rows_say_why(
    pytorch: bool, known: ValidationRecord, rows: dict[str, tuple[str, str]]
) -> None:
    made = launch_of(stated(pytorch), {"w": known}).run()  # its context has no executor that could start one
    assert (made.status, made.message) == ("not_run", f"nothing can run here, so nothing was timed: w: {known.message}")
    assert {row.target: (row.status, row.message) for row in made.timings} == rows


@pytest.mark.parametrize(
    ("pytorch", "known"),
    [
        (False, validation("crashed", "it raised", model="ok")),
        (False, validation("build_failed", "g++ failed", model="wrong")),
        (False, validation("wrong", "0 of 1 trials pass", model="unsupported")),
        (True, validation("undecidable")),
    ],
)
def test_where_a_reference_or_the_kernel_gave_an_output_replicates_are_made(
    pytorch: bool, known: ValidationRecord
) -> None:
    assert launch_of(stated(pytorch), {"w": known}).cannot_run == ""


def stated(pytorch: bool) -> Any:
    workload = SimpleNamespace(id="w", problem=None, backward=False)
    info = SimpleNamespace(pytorch=pytorch, references_on=lambda _: ["model"])
    return SimpleNamespace(workloads_of=lambda *_: [workload], kernel=lambda _: info)


def test_a_verb_has_room_for_files_where_the_limits_say_nothing() -> None:
    plans: list[Any] = [SimpleNamespace(limits=matrix.Limits(output_gib=gib)) for gib in (None, 0.5)]
    assert [room_bytes(plan) for plan in plans] == [2 << 30, 1 << 29]
