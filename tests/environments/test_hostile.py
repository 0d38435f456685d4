"""Hostile kernels in one real run: each is a row with its status and message, and takes nothing else with it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.executors.process import LOG_LIMIT_BYTES
from harness.schema.records import LaunchRecord, TargetTiming, ValidationRecord
from harness.schema.run_records import RunRecord
from harness.schema.storage import Run, load_record
from tests.candidates.hostile import HOSTILE, IN_SANDBOXES, SCRIPT, SLEEP_S, check_launch, check_validation, files_of
from tests.conftest import ROOT
from tests.projects import (
    BROKEN_SOURCE,
    WORKLOADS,
    Finished,
    command_lines,
    head,
    make_project,
    report,
    solutions,
    start,
)

pytestmark = [pytest.mark.environments, pytest.mark.timeout(1500)]

EVENTS = """
import sys
sys.path.insert(0, sys.argv[1])
from worker import events
event = events._Event(enable_timing=True)
assert event.query() and callable(event.record) and callable(event.elapsed_time)
for name in ("record", "query", "synchronize", "elapsed_time"):
    try:
        setattr(events._Event, name, None)
    except TypeError:
        continue
    raise AssertionError(name + " can be replaced")
"""


def test_what_a_gpu_s_times_are_asked_of_takes_no_other_method_from_python(pinned_pythons: list[Path]) -> None:
    for python in pinned_pythons:
        done = subprocess.run(
            [str(python), "-c", EVENTS, str(ROOT / "harness")], capture_output=True, text=True, cwd=python.parent
        )
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """One run of all of them, of a kernel that does not compile, and of a right one."""
    matrix = head("2.5.0") + "kernels:\n" + solutions(HOSTILE)
    matrix += "  - {name: compile_error, sources: {cpu: [faults/broken.cpp]}}\n"
    matrix += "  - {name: attention_scalar, sources: {cpu: [csrc/attention_scalar_cpu.cpp]}}\n"
    matrix += WORKLOADS + "limits: {validation_s: 120, launch_s: 300}\n"
    files = {**files_of(HOSTILE), "faults/broken.cpp": BROKEN_SOURCE}
    project = make_project(tmp_path_factory.mktemp("hostile") / "project", matrix, files)
    return start(project, "matrix", "--launches=1", "--device=cpu", "--no-check")


def launch_of(run: Run, name: str) -> tuple[LaunchRecord, TargetTiming | None]:
    launch = next(x for x in run.launches() if x.kernel == name)
    return launch, next((t for t in launch.timings if t.target == "kernel"), None)


@pytest.mark.parametrize("name", HOSTILE)
def test_each_is_a_row_with_its_status_and_message(hostile: Finished, name: str) -> None:
    sandboxed = load_record(hostile.run.run_path(), RunRecord).sandboxed
    check_validation(HOSTILE[name], hostile.run, name, IN_SANDBOXES.get(name) if sandboxed else None)


@pytest.mark.parametrize("name", [name for name, case in HOSTILE.items() if case.timed])
def test_each_launch_says_what_went_wrong_in_it(hostile: Finished, name: str) -> None:
    check_launch(HOSTILE[name], launch_of(hostile.run, name)[0])


def test_a_compile_error_shows_the_compilers_message_and_exits_20(hostile: Finished) -> None:
    code, printed, run = hostile
    assert code == 20, printed
    build = next(b for b in run.builds() if b.kernel == "compile_error")
    assert build.status == "build_failed" and "undeclared_name" in build.message + build.log_excerpt
    validation = next(v for v in run.validations() if v.kernel == "compile_error")
    assert validation.status == "build_failed"
    reference = {t.target: t.status for t in validation.recipes[0].targets}
    assert reference.get("flash") == "ok", "what the kernel does not take part in is still measured"


def test_a_fault_takes_no_other_row_with_it(hostile: Finished) -> None:
    run = hostile.run
    assert next(v for v in run.validations() if v.kernel == "attention_scalar").status == "ok"
    timings = {name: launch_of(run, name)[0].timings for name in ("attention_scalar", "aborts")}
    assert all(t.status == "ok" for t in timings["attention_scalar"])
    assert {t.target: t.status for t in timings["aborts"]} == {"kernel": "not_run", "model": "ok"}


def test_the_run_record_is_complete(hostile: Finished) -> None:
    record = load_record(hostile.run.run_path(), RunRecord)
    assert record.command[:2] == ["kernel-matrix", "matrix"] and record.matrix_text and record.sources_sha256
    for cell in record.cells:
        assert load_record(hostile.run.validation_path(cell), ValidationRecord).workload == cell.workload


def test_the_inputs_of_their_problem_are_made_once(hostile: Finished) -> None:
    assert len(list((hostile.run.folder / "logs").rglob("store-*.log"))) <= 1, "0 where an earlier run has made them"


@pytest.mark.parametrize("name", ["replaces_sampling", "replaces_clock_below_python"])
def test_a_clock_that_is_replaced_is_not_the_one_that_counts(hostile: Finished, name: str) -> None:
    launch, row = launch_of(hostile.run, name)
    model = next(timing for timing in launch.timings if timing.target == "model")
    assert row is not None and (row.status, row.correct, model.status) == ("ok", True, "ok")
    # The least that the model, which does the same work, took in any launch: a busy machine makes most of them long.
    timings = [timing for launch in hostile.run.launches() for timing in launch.timings if timing.target == "model"]
    least = min(min(timing.samples_us) for timing in timings if timing.samples_us)
    assert min(row.samples_us) > least / 3, "no process has the clock of another"


def test_a_failed_kernel_shows_its_traceback(hostile: Finished) -> None:
    validation = next(v for v in hostile.run.validations() if v.kernel == "script")
    target = validation.recipes[0].targets[-1]
    assert target.status == "crashed" and "Traceback" in target.log_excerpt
    assert target.message == validation.message.partition(": ")[2]


def test_a_loud_kernel_fills_no_disk(hostile: Finished) -> None:
    logs = list((hostile.run.folder / "logs").rglob("candidate-shouts-*.log"))
    assert len(logs) == 1 and logs[0].stat().st_size < LOG_LIMIT_BYTES + 100
    assert b"bytes dropped here" in logs[0].read_bytes()


def test_no_process_is_left(hostile: Finished) -> None:
    assert ["sleep", SLEEP_S] not in command_lines().values()


def test_the_page_shows_what_they_say_and_runs_none_of_it(hostile: Finished) -> None:
    run = hostile.run
    code, printed = report(run)
    assert code == 20, printed
    page = (run.folder / "index.html").read_text()
    assert "<script>alert" not in page
    assert SCRIPT.replace("<", "&lt;").replace(">", "&gt;") in page
    assert all(words in page for words in ("exited with 0 before it gave a result", "undeclared_name", "SIGABRT"))
