"""A process that ended without a result: after how long it did, and how much memory it had used."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from harness.executors import Answer
from harness.executors.process import Ended, Gate, run_child
from harness.run.context import failure
from harness.schema.records import Outcome, ValidationRecord
from harness.schema.storage import from_json_value, load_record, save_record
from reports.load.evidence import load_evidence
from reports.model import Side
from reports.render.report import Report
from reports.text import end_text
from tests.unit.attributed import TIMED, spec
from tests.unit.spec import NEXT
from tests.unit.synthetic import write_run

MIB = 1 << 20
HELD_BYTES = 200 * MIB
INTERPRETER_BYTES = 100 * MIB  # more than a Python without packages has resident
HOLD = f"held = b'x' * {HELD_BYTES}\n"
AGE_S = 0.3
AGE = f"import time\nborn = time.monotonic()\nwhile time.monotonic() - born < {AGE_S}: time.sleep(0.01)\n"
ABORT = "import os; os.abort()\n"


def run_code(tmp_path: Path, code: str, timeout_s: float = 500, gate: Gate | None = None) -> Ended:
    command = [sys.executable, "-c", code]
    return run_child(command, cwd=tmp_path, log=tmp_path / "log", timeout_s=timeout_s, environment={}, gate=gate)


@pytest.mark.process
def test_a_crash_is_told_with_its_time_and_its_memory(tmp_path: Path) -> None:
    started = time.monotonic()
    ended = run_code(tmp_path, AGE + HOLD + ABORT)
    elapsed_s = time.monotonic() - started
    assert ended.how == "died by SIGABRT"
    assert AGE_S <= ended.duration_s <= elapsed_s
    assert ended.peak_bytes is not None
    assert HELD_BYTES < ended.peak_bytes < HELD_BYTES + INTERPRETER_BYTES

    outcome = failure(Answer(result=None, ended=ended), "the kernel's process")
    assert outcome.ended_after_s == pytest.approx(ended.duration_s, abs=0.001)
    assert outcome.ended_peak_bytes == ended.peak_bytes


@pytest.mark.process
def test_memory_is_the_processes_own_and_not_of_what_started_it(tmp_path: Path) -> None:
    held = b"x" * (HELD_BYTES + INTERPRETER_BYTES)  # a child that is forked from this process begins with it
    ended = run_code(tmp_path, ABORT)
    assert ended.peak_bytes is not None and 0 < ended.peak_bytes < INTERPRETER_BYTES < len(held)


@pytest.mark.process
def test_the_largest_process_that_was_waited_for_counts(tmp_path: Path) -> None:
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {HOLD!r}])\n"
    ended = run_code(tmp_path, code + ABORT)
    assert ended.peak_bytes is not None and ended.peak_bytes > HELD_BYTES


@pytest.mark.process
def test_a_process_that_is_killed_at_its_time_limit_has_its_memory(tmp_path: Path) -> None:
    gate = Gate()  # whose opening its limit begins with
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(run_code, tmp_path, f"{HOLD}open('held', 'w')\nimport time; time.sleep(600)\n", 0.1, gate)
        while not (tmp_path / "held").exists():
            time.sleep(0.01)
        gate.open()
        ended = going.result()
    assert ended.timed_out and ended.duration_s >= 0.1
    assert ended.peak_bytes is not None
    assert HELD_BYTES < ended.peak_bytes < HELD_BYTES + INTERPRETER_BYTES


@pytest.mark.process
def test_of_a_command_that_cannot_be_started_no_memory_is_told(tmp_path: Path) -> None:
    ended = run_child(["/nowhere"], cwd=tmp_path, log=tmp_path / "log", timeout_s=500, environment={})
    assert ended.returncode == 125 and ended.peak_bytes is None


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ([(3.2, 1503238554)], " after 3.2 s, at 1.4 GiB"),
        ([(3.2, None)], " after 3.2 s"),
        ([(None, 1503238554)], " at 1.4 GiB"),
        ([(None, None)], ""),
        ([], ""),
        ([(4.12, 3 * MIB), (3.2, 1503238554), (None, None)], " after 3.2 s to 4.12 s, at 3 MiB to 1.4 GiB"),
        ([(1800.04, 3 * MIB), (1800.1, 3 * MIB)], " after 1800 s, at 3 MiB"),
    ],
)
def test_how_it_reads(ends: list[tuple[float | None, int | None]], text: str) -> None:
    every = [
        Side(environment="b", status="crashed", ended_after_s=seconds, ended_peak_bytes=size) for seconds, size in ends
    ]
    assert end_text(every) == text


CRASH = Outcome(
    status="crashed",
    message="the kernel's process died by SIGABRT",
    log_excerpt="loading\ndouble free\n",
    ended_after_s=3.2,
    ended_peak_bytes=1503238554,
)


def test_a_page_says_it_where_the_version_is_named(tmp_path: Path) -> None:
    run = write_run(tmp_path, spec(**TIMED))
    for cell in run.load().cells:
        if cell.environment == NEXT:
            path = run.validation_path(cell)
            known = load_record(path, ValidationRecord)
            save_record(path, replace(known, **vars(CRASH), recipes=[]))
    report = Report(load_evidence(tmp_path))
    words = "crashes: the kernel's process died by SIGABRT; the last line of its log: double free ("
    where = "in 2.5.0 after 3.2 s, at 1.4 GiB)"
    [said] = [text for text in report.answers.kernels[0].open if text.startswith(words)]
    assert said.endswith(where)
    assert any(said in line for line in report.answers.lines), "a terminal shows it"


def test_a_record_from_before_this_was_recorded_says_nothing_of_it(tmp_path: Path) -> None:
    before = {name: value for name, value in vars(CRASH).items() if not name.startswith("ended_")}
    outcome = from_json_value(Outcome, before)
    assert outcome.ended_after_s is None and outcome.ended_peak_bytes is None
