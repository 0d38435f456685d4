"""What children of a killed harness leave running is ended by the next run, and what others run is not."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.executors.process import MARK, kill_leftovers, temporary_folder
from tests.faults.scripted import ROOT, wait_until

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
            if process.name() == "sleep" and f"/{harness}/" in process.environ().get(MARK, ""):
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


@pytest.mark.parametrize("mark", ["", "0123456789abcdef", "a b c d", "pid:[1]/999999/1"])
def test_a_mark_of_another_kind_or_another_machine_is_not_ours(mark: str) -> None:
    other = subprocess.Popen(["sleep", "600"], env={**os.environ, MARK: mark})
    try:
        kill_leftovers()
        assert not wait_until(lambda: other.poll() is not None, 0.3)
    finally:
        other.kill()
        other.wait()
