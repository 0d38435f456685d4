"""A process that ended without a result: after how long it did."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from harness.executors import Answer
from harness.executors.process import run_child
from harness.run.context import failure
from harness.schema.records import Outcome, ValidationRecord
from harness.schema.storage import load_record, save_record
from reports.load.evidence import load_evidence
from reports.model import Side
from reports.render.report import Report
from reports.text import end_text
from tests.unit.attributed import TIMED, spec
from tests.unit.spec import NEXT
from tests.unit.synthetic import write_run

AGE_S = 0.3
AGE = f"import time\nborn = time.monotonic()\nwhile time.monotonic() - born < {AGE_S}: time.sleep(0.01)\n"


@pytest.mark.process
def test_a_crash_is_told_with_its_time(tmp_path: Path) -> None:
    started = time.monotonic()
    command = [sys.executable, "-c", AGE + "import os; os.abort()"]
    ended = run_child(command, cwd=tmp_path, log=tmp_path / "log", timeout_s=500, environment={})
    assert ended.how == "died by SIGABRT" and AGE_S <= ended.duration_s <= time.monotonic() - started
    outcome = failure(Answer(result=None, ended=ended), "the kernel's process")
    assert outcome.ended_after_s == pytest.approx(ended.duration_s, abs=0.001)


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ([3.2], " after 3.2 s"),
        ([None], ""),
        ([], ""),
        ([4.12, 3.2, None], " after 3.2 s to 4.12 s"),
        ([1800.04, 1800.1], " after 1800 s"),
    ],
)
def test_how_it_reads(ends: list[float | None], text: str) -> None:
    assert end_text(Side(environment="b", status="crashed", ended_after_s=seconds) for seconds in ends) == text


CRASH = Outcome(
    status="crashed",
    message="the kernel's process died by SIGABRT",
    log_excerpt="loading\ndouble free\n",
    ended_after_s=3.2,
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
    where = "in 2.5.0 after 3.2 s)"
    [said] = [text for text in report.answers.kernels[0].open if text.startswith(words)]
    assert said.endswith(where)
    assert any(said in line for line in report.answers.lines), "a terminal shows it"
