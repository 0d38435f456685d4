"""A full disk, and folders that cannot be written to: said with the path and the remedy, and never a kernel's fault."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.schema.records import LaunchRecord, Timing
from harness.schema.storage import Run, refuse_without_space
from harness.worker import protocol
from tests.faults.scripted import ROOT, Scripted, contents
from tests.projects import SHIPPED, head, make_project, start

pytestmark = [
    pytest.mark.process,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk"),
]
KIB = 1024
ROOM = 64 << 20
NOBODY = 65534


@contextlib.contextmanager
def disk(place: Path, size_bytes: int) -> Iterator[None]:
    """A disk of its own at `place`, of this size."""
    place.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=755", "tmpfs", str(place)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.skip(f"mount refused: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def remount(place: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(place)], check=True)


def said(printed: str, *places: Path) -> None:
    """The message names a path on the full disk, and what to do."""
    assert "Traceback" not in printed, printed
    line = next((line for line in printed.splitlines() if line.startswith("cannot go on: ")), "")
    assert re.search("No space left on device", line) and any(str(place) in line for place in places), printed
    assert "remedy: free some space" in printed, printed


@pytest.mark.parametrize("share", [0.0, 0.05, 0.2, 0.4, 0.6, 0.75, 0.9])
@pytest.mark.parametrize("which", ["runs", "cache"])
def test_a_full_disk_stops_the_run_and_loses_nothing(
    tmp_path: Path, undisturbed: Scripted, which: str, share: float
) -> None:
    """The disk has some share of the room that the whole run takes, so that it is full at one moment or another."""
    scripted = Scripted(tmp_path)
    place = scripted.root / "reports" / "runs" if which == "runs" else scripted.cache
    whole = undisturbed.root / "reports" / "runs" if which == "runs" else undisturbed.cache
    pages = sum(-(-path.stat().st_size // 4096) for path in whole.rglob("*") if path.is_file())
    with disk(place, max(1, int(share * pages)) * 4 * KIB):
        said(scripted.done(code=30), place)
        kept = scripted.kept
        for folder in scripted.runs:
            if (folder / "run.json").exists():
                known = contents(undisturbed.latest)
                found = contents(Run(folder))  # refuses what is half-written
                found.pop("run.json"), known.pop("run.json")
                assert {name: known[name] for name in found} == found, "what is recorded is no row of the disk's"
        remount(place, f"size={ROOM}")
        scripted.finish_as(undisturbed, kept)


def test_a_disk_without_inodes_is_full_too(tmp_path: Path, undisturbed: Scripted) -> None:
    scripted = Scripted(tmp_path)
    place = scripted.root / "reports" / "runs"
    with disk(place, ROOM):
        remount(place, "nr_inodes=30")
        said(scripted.done(code=30), place)
        remount(place, "nr_inodes=10000")
        scripted.finish_as(undisturbed)


def launch(message: str) -> LaunchRecord:
    return LaunchRecord(
        status="ok",
        environment="e",
        kernel="k",
        device="cpu",
        key="",
        index=0,
        position=0,
        started_utc="",
        duration_s=1,
        timings=[Timing(status="crashed", workload="w", target="kernel", order=0, message=message)],
    )


def test_a_kernel_that_says_that_the_disk_is_full_has_its_row_where_it_is_not_full(tmp_path: Path) -> None:
    lie = launch("raised OSError: [Errno 28] No space left on device")
    with disk(tmp_path / "large", 2 << 30), disk(tmp_path / "small", 1 << 20):
        large = tmp_path / "large"
        refuse_without_space(lie, large)
        refuse_without_space(launch("no such luck"), tmp_path / "small")
        refuse_without_space(replace(lie, status="killed"), tmp_path / "small")
        with pytest.raises(Exception, match="No space left on device"):
            refuse_without_space(lie, large, tmp_path / "small" / "not" / "there")


def test_a_write_that_fails_names_its_file_and_leaves_nothing(tmp_path: Path) -> None:
    with disk(tmp_path / "small", 16 * KIB):
        target = tmp_path / "small" / "record.json"
        protocol.write_atomically(str(target), b"before")
        with pytest.raises(OSError, match="No space left") as caught:
            protocol.write_atomically(str(target), b"x" * (1 << 20))
        assert caught.value.filename == str(target)
        assert target.read_bytes() == b"before" and [path.name for path in target.parent.iterdir()] == ["record.json"]


# -- folders that cannot be written to --------------------------------------------------------------------


def as_nobody(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", sys.executable, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1", **variables},
    )


@pytest.fixture
def strangers() -> Iterator[Scripted]:
    """A project of root's that others can read; a test's own folder they cannot."""
    if not shutil.which("setpriv"):
        pytest.skip("no setpriv: apt-get install util-linux")
    folder = Path(f"/tmp/kernel-matrix-faults-{os.getpid()}")
    folder.mkdir(mode=0o755)
    try:
        probe = as_nobody("-c", "import pydantic, harness")
        if probe.returncode:
            pytest.skip(f"another user cannot read this installation: {probe.stderr.strip().splitlines()[-1]}")
        yield Scripted(folder)
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("which", ["reports", "runs", "cache", "locks"])
def test_a_folder_of_another_user_is_named(strangers: Scripted, which: str) -> None:
    theirs = strangers.root.parent / "nobody"
    theirs.mkdir()
    os.chown(theirs, NOBODY, NOBODY)
    cache, place = theirs, strangers.root
    if which == "runs":
        place = strangers.root / "reports" / "runs"
        place.mkdir(parents=True)
    elif which in ("cache", "locks"):
        os.chown(strangers.root, NOBODY, NOBODY)
        cache = place = strangers.root.parent / "roots"
        (cache / "locks").mkdir(parents=True)
        if which == "locks":
            place = cache / "locks"
            os.chown(cache, NOBODY, NOBODY)
    matrix = f"--matrix={strangers.root / 'matrix.yaml'}"
    words = ("-m", "tests.faults.scripted", "matrix", matrix, "--executor=venv")
    done = as_nobody(*words, KERNEL_MATRIX_CACHE=str(cache))
    printed = done.stdout + done.stderr
    assert done.returncode in (30, 64), printed
    assert "Traceback" not in printed and "remedy:" in printed, printed
    assert str(place) in printed and "ermission denied" in printed, printed


@pytest.mark.parametrize("which", ["reports", "cache"])
def test_a_disk_that_is_mounted_for_reading_only_is_named(tmp_path: Path, which: str) -> None:
    scripted = Scripted(tmp_path)
    place = scripted.root / "reports" if which == "reports" else scripted.cache
    with disk(place, ROOM):
        remount(place, "ro")
        printed = scripted.done(code=30)
        assert "Traceback" not in printed, printed
        assert str(place) in printed and "ead-only file system" in printed, printed
        assert "free some space" not in printed, "there may be plenty"
        remount(place, "rw")
        scripted.done()


# -- the real thing ---------------------------------------------------------------------------------------


@pytest.mark.environments
def test_real_verbs_on_a_full_disk_blame_nobody(tmp_path: Path) -> None:
    """Outputs, truths, arrays and results of the pinned environment's own processes. The disk grows, each time by too
    little, so that it is full in one of them after the other."""
    project = make_project(tmp_path / "project", head("2.5.0") + SHIPPED)
    place = project / "reports" / "runs"
    with disk(place, 40 * KIB):
        for size_bytes in (40 * KIB, 200 * KIB, 400 * KIB, 600 * KIB):
            remount(place, f"size={size_bytes}")
            code, printed, _ = start(project, "matrix", "--launches=1", "--device=cpu")
            assert code == 30, printed
            said(printed, place)
            for folder in place.iterdir():
                rows = [*Run(folder).validations(), *Run(folder).launches(), *Run(folder).builds()]
                assert {row.status for row in rows} <= {"ok"}, rows
        remount(place, f"size={ROOM}")
        code, printed, run = start(project, "matrix", "--launches=1", "--device=cpu")
        assert code == 0, printed
        assert {row.status for row in [*run.validations(), *run.launches(), *run.builds()]} == {"ok"}
