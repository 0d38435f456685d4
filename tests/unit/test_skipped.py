"""What kernel-matrix, an environment or a limit fails at: which process held the subject, and whose file it is."""

from __future__ import annotations

import base64
import hashlib
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UNDECIDED
from harness.executors import Answer
from harness.executors.base import mismatch
from harness.executors.process import Ended
from harness.run.context import failure
from harness.schema.records import Status, ValidationRecord
from harness.schema.storage import load_record, save_record
from harness.worker import wheels
from harness.worker.blame import skipped
from harness.worker.protocol import Fault
from reports.compare.exit_codes import exit_codes
from reports.load.evidence import load_evidence
from reports.render.report import Report
from tests.unit.attributed import TIMED, spec
from tests.unit.spec import NEXT
from tests.unit.synthetic import write_run
from tests.unit.test_venv import observation, planned

LOG = "Traceback\nOSError: the last line\n\n"


@pytest.mark.parametrize(
    ("ended", "holds_subject", "status", "fault"),
    [
        ({"returncode": -signal.SIGSEGV}, True, "crashed", Fault.SUBJECT),
        ({"returncode": 1}, True, "crashed", Fault.SUBJECT),
        ({"returncode": 1, "timed_out": True}, True, "timed_out", Fault.SUBJECT),
        ({"returncode": -signal.SIGSEGV}, False, "not_run", Fault.TOOL),
        ({"returncode": 1}, False, "not_run", Fault.TOOL),
        ({"returncode": -signal.SIGSYS}, True, "not_run", Fault.LIMIT),
        ({"returncode": -signal.SIGXFSZ}, True, "not_run", Fault.LIMIT),
        ({"returncode": 137, "killed_by": "its memory limit of 8 GiB"}, True, "killed", Fault.LIMIT),
    ],
)
def test_a_process_that_gave_no_result(ended: dict[str, Any], holds_subject: bool, status: str, fault: Fault) -> None:
    answer = Answer(result=None, ended=Ended(**{"timed_out": False, "duration_s": 1.0, "log": LOG, **ended}))
    outcome = failure(answer, "the judge", holds_subject=holds_subject)
    assert (outcome.status, outcome.fault) == (status, fault)
    begins = "kernel-matrix could not measure this here, because the judge " if fault != Fault.SUBJECT else "the judge "
    assert outcome.message.startswith(begins)
    assert ("the last line of its log: OSError: the last line (help: " in outcome.message) is (fault != Fault.SUBJECT)


def test_a_numpy_that_pytorch_cannot_use_is_found_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "pins.txt").write_text("")
    seen = observation(settings={"torch.numpy": "cannot be used: Numpy is not available"}, numpy="2.0.2")
    found = mismatch(planned(), tmp_path / "pins.txt", seen)
    assert "numpy 2.0.2 cannot be used: Numpy is not available; help: " in found and "packages: [numpy==" in found


def install(site: Path, name: str, **files: str) -> None:
    """A distribution's own list of files, as an installer leaves it."""
    folder = site / f"{name}-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
    rows = []
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{path.replace('__', '/')},sha256={digest},1")
    (folder / "RECORD").write_text("\n".join(rows) + "\n")


def test_a_file_is_whole_as_any_of_its_owners_brought_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    vendored = site / "setuptools" / "_vendor"
    install(site, "wheel", bin__wheel="one", own="own")
    install(site, "setuptools", bin__wheel="two")
    install(vendored, "wheel", bin__nothing="never installed")
    (site / "bin").mkdir()
    (site / "own").write_text("own")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(site), str(vendored)])  # setuptools puts its own packages on the path
    for written in ("one", "two"):
        (site / "bin" / "wheel").write_text(written)
        assert wheels.damaged(1) == []
    (site / "bin" / "wheel").write_text("three")
    assert wheels.damaged(1) == [str(site / "bin" / "wheel")]
    assert list(wheels.installed()) == ["setuptools", "wheel"]


# What ended it, and who failed, in one version or in both.
SKIPS = [("not_run", Fault.TOOL), ("killed", Fault.LIMIT), ("crashed", Fault.ENVIRONMENT)]


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize(("status", "fault"), SKIPS)
def test_what_kernel_matrix_could_not_measure_is_skipped_and_nothing_else(
    status: Status, fault: Fault, both: bool, tmp_path: Path
) -> None:
    run, message = write_run(tmp_path, spec(**TIMED)), skipped("OSError: no", "mend it")
    for cell in run.load().cells:
        if both or cell.environment == NEXT:
            path = run.validation_path(cell)
            known = load_record(path, ValidationRecord)
            changed = {"status": status, "fault": fault, "message": message, "recipes": []}
            save_record(path, replace(known, **changed))
    report = Report(load_evidence(tmp_path))
    (answer,) = report.answers.kernels
    said = " ".join(report.answers.lines)
    assert answer.state == "not run" and "skipped in " in answer.what
    where = "in 2.1.0 and in 2.5.0" if both else "in 2.5.0"
    words = "skipped: kernel-matrix could not measure this here, because OSError: no (help: mend it)"
    assert any(text.startswith(words) and where in text for text in answer.open)
    assert not [word for word in ("broke", "wrong", "crash", "did not cause it", "killed") if word in said]
    code = exit_codes(report.evidence, report.rows, frozenset({"correctness"}))
    assert (UNDECIDED in code) is not both, "no gate passes what it did not see"
