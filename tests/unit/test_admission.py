"""Which kernels may be timed: each thing that speaks against one, in one environment alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.experiments.admission import find_fault, find_refusals
from harness.schema.environment_records import BuildRecord
from harness.schema.experiment_records import Condition, ConditionResult, ConditionsExperiment, ConditionsRecord
from harness.schema.records import LaunchRecord, Record, Status, ValidationRecord
from harness.schema.run_records import Cell
from harness.schema.storage import Run, from_json_value, save_record
from tests.unit.hand_made import PLACE, WHEN, build, launch, target, timing, validation
from tests.unit.spec import BASE, NEXT


def result(
    bits: list[str], site: str = "", label: str = "x", status: Status = "ok", message: str = ""
) -> ConditionResult:
    """`bits` of each trial: a letter for each of its runs, the same letter for the same output."""
    runs = len("".join(bits))
    return ConditionResult(
        condition=from_json_value(Condition, {"label": label, "site": site}),
        status=status,
        message=message,
        runs=runs,
        passed=runs if status == "ok" else 0,
        output_sha256=[list(each) for each in bits],
    )


def experiment(name: ConditionsExperiment, *results: ConditionResult, **changes: Any) -> ConditionsRecord:
    place = PLACE | WHEN | {"environment": NEXT, "workload": "w"}
    return ConditionsRecord(**place | {"experiment": name, "results": list(results)} | changes)


REPEAT = experiment("repeat", result(["a" * 50]))
CLEAN = experiment("poison", result(["aa", "bb"], "heap", "heap: zero"), result(["aa", "bb"], "heap", "heap: NaN"))


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (REPEAT, ""),
        (CLEAN, ""),
        (experiment("repeat", result(["a" * 49 + "b"], label="50 times")), "2 different outputs in 50 runs"),
        (experiment("poison", result(["a"], "heap", "zero"), result(["a"], "heap", "NaN", "wrong")), "NaN: 0 of 1"),
        (experiment("poison", result(["a"], "heap", "zero"), result([], "heap", "NaN", "crashed", "signal 11")), "NaN"),
        (experiment("poison", result(["a"], "heap", "zero"), result(["c"], "heap", "NaN")), "NaN"),  # of other bits
        (experiment("poison", result(["a"], "heap", "zero"), result(["ac"], "heap", "NaN")), "NaN"),
        # Of different places the bits need not be compared.
        (experiment("poison", result(["a"], "heap", "zero"), result(["c"], "stack", "NaN")), ""),
        (experiment("poison", status="crashed", message="lost"), "could not be made: lost"),
        (experiment("poison", result([], "heap", "NaN", "not_run", "no compiler")), "could not be made: no compiler"),
        # What cannot be made here speaks against nobody.
        (experiment("poison", result(["a"], "heap", "zero"), result([], "shared", "NaN", "not_run", "no nvcc")), ""),
    ],
)
def test_an_experiment_shows_what_speaks_against_a_kernel(record: ConditionsRecord, said: str) -> None:
    found = find_fault(record)
    assert said in found and bool(found) == bool(said)


def write(folder: Path, *records: Record) -> Run:
    run = Run(folder)
    for record in records:
        path = folder
        if isinstance(record, BuildRecord):
            path = run.build_path(record.environment, record.kernel, record.device)
        elif isinstance(record, ValidationRecord):
            path = run.validation_path(Cell(environment=NEXT, kernel=record.kernel, workload="w", device="cpu"))
        elif isinstance(record, LaunchRecord):
            path = run.launch_path(record.environment, record.kernel, record.device, record.index)
        elif isinstance(record, ConditionsRecord):
            path = run.experiment_path(record.environment, record.kernel, record.device, "w", record.experiment)
        save_record(path, record)
    return run


@pytest.mark.parametrize(
    ("records", "why"),
    [
        ([build(BASE), build(NEXT), validation(target(5), environment=NEXT), CLEAN, REPEAT], None),
        ([build(BASE), build(NEXT, status="build_failed", message="error: x")], f"build in {NEXT}: error: x"),
        *(
            ([validation(target(2), environment=NEXT, status=status, message="19")], f"correctness in {NEXT}: 19")
            for status in ("wrong", "crashed", "timed_out", "unsupported", "not_run", "broken")
        ),
        ([validation(target(5, repeats_differ=2), environment=NEXT)], f"repeat in {NEXT}: other bits"),
        ([experiment("poison", status="crashed", message="lost")], f"poison in {NEXT}: "),
        ([launch(timing(1, correct=False), environment=NEXT)], "not the validated one"),
        ([launch(timing(status="crashed", message="signal 11"), environment=NEXT)], f"time in {NEXT}: signal 11"),
        ([launch(environment=NEXT, status="timed_out", message="too long")], f"time in {NEXT}: too long"),
    ],
)
def test_a_kernel_is_refused_for_what_speaks_against_it_in_one_environment(
    tmp_path: Path, records: list[Record], why: str | None
) -> None:
    found = find_refusals(write(tmp_path, *records))
    assert (why or "") in found.get("mine", "") and bool(found) == bool(why)
