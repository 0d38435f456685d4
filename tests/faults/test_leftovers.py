"""What a killed harness leaves, processes and files, is ended or removed by the next run; what others have is not."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from harness.cli.main import find_remedy
from harness.errors import InfrastructureError
from harness.executors.process import MARK, kill_leftovers, temporary_folder
from harness.run.folders import new_run, point_latest
from harness.schema.storage import Run
from tests.conftest import ROOT
from tests.faults.world import wait_until

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]

# A child that starts a process of another session, as ninja and hostile kernels do, and then waits.
HARNESS = """
import sys
from pathlib import Path
from harness.executors.process import run_child
inner = "import subprocess, time; subprocess.Popen(['sleep', '601'], start_new_session=True); time.sleep(601)"
run_child([sys.executable, "-c", inner], cwd=Path("/tmp"), log=Path(sys.argv[1]), timeout_s=600, environment={})
"""


def sleepers(harness: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.name() == "sleep" and f"-{harness}-" in process.environ().get(MARK, ""):
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", HARNESS, str(tmp_path / "log")], cwd=ROOT)
    try:
        assert wait_until(lambda: len(sleepers(child.pid)) == 1)
        yield child
    finally:
        child.kill()
        child.wait()
        for process in sleepers(child.pid):
            process.kill()


def test_what_a_killed_harness_left_is_killed(harness: subprocess.Popen[bytes]) -> None:
    guard = psutil.Process(harness.pid).children()[0]
    guard.suspend()  # killed along with the harness, before it can end what is below it
    harness.kill()  # and not waited for: a zombie is dead
    assert wait_until(lambda: psutil.Process(harness.pid).status() == psutil.STATUS_ZOMBIE)
    guard.kill()
    assert wait_until(lambda: not guard.is_running() or guard.status() == psutil.STATUS_ZOMBIE)
    assert len(sleepers(harness.pid)) == 1, "nothing was left, so nothing is shown"
    kill_leftovers()
    assert wait_until(lambda: not sleepers(harness.pid))


def test_what_is_below_a_child_ends_with_a_killed_harness(harness: subprocess.Popen[bytes]) -> None:
    harness.kill()
    assert wait_until(lambda: not sleepers(harness.pid))


def test_what_a_harness_still_runs_is_left_alone(harness: subprocess.Popen[bytes]) -> None:
    kill_leftovers()
    assert not wait_until(lambda: not sleepers(harness.pid), 0.5) and harness.poll() is None


def test_temporary_folders_of_a_killed_harness_are_removed_and_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    held = "import time\nfrom harness.executors.process import temporary_folder as made\nwith made(): time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", held], cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)})
    try:
        assert wait_until(lambda: any(tmp_path.glob("kernel-matrix-*")))
        (tmp_path / "kernel-matrix-of-nobody").mkdir()
        with temporary_folder() as own:
            kill_leftovers()
            assert len(list(tmp_path.iterdir())) == 3
            child.kill()
            child.wait()
            kill_leftovers()
            assert {path.name for path in tmp_path.iterdir()} == {own.name, "kernel-matrix-of-nobody"}
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("mark", ["", "0123456789abcdef", "a b c d", "01234567-999999-1"])
def test_a_mark_of_another_kind_or_another_machine_is_not_ours(mark: str) -> None:
    other = subprocess.Popen(["sleep", "600"], env={**os.environ, MARK: mark})
    try:
        kill_leftovers()
        assert not wait_until(lambda: other.poll() is not None, 0.3)
    finally:
        other.kill()
        other.wait()


def test_parts_of_a_page_are_removed_once_the_process_that_wrote_them_is_gone(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    gone, present = tmp_path / f".{ended.pid}-abc.part", tmp_path / f".{os.getpid()}-abc.part"
    gone.touch()
    present.touch()
    Run(tmp_path).sweep()
    assert not gone.exists() and present.exists()


def test_what_was_removed_while_in_use_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_MATRIX_CACHE", str(tmp_path / "cache"))
    for place, is_ours in (("cache/builds/x", True), ("reports/runs/x", True), ("elsewhere", False)):
        missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(tmp_path / place))
        found = find_remedy(missing, tmp_path / "matrix.yaml")
        assert isinstance(found, InfrastructureError) == is_ours
        assert not is_ours or "start the same command again" in str(found)


def test_reports_latest_is_moved_by_many_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_MATRIX_CACHE", str(tmp_path / "cache"))
    runs = [new_run(tmp_path, digit * 12) for digit in "0123"]
    with ThreadPoolExecutor(len(runs)) as pool:
        for _ in pool.map(lambda run: point_latest(tmp_path, run), runs * 25):
            pass
    assert (tmp_path / "reports" / "latest").resolve() in [run.folder for run in runs]
    assert not list((tmp_path / "reports").glob(".*"))
