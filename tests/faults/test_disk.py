"""Full disks and folders that cannot be written to, for real: told with their path, and never a kernel's fault."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.schema.records import LaunchRecord, TargetTiming
from harness.schema.storage import Run, refuse_without_space
from harness.worker import protocol
from tests.faults.world import World, contents
from tests.projects import SHIPPED, head, make_project, start

pytestmark = [
    pytest.mark.process,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk"),
]
KIB, ROOM, NOBODY = 1024, 64 << 20, 65534


@contextlib.contextmanager
def disk(place: Path, size_bytes: int) -> Iterator[None]:
    """Mount a disk of this size."""
    place.mkdir(parents=True, exist_ok=True)
    options = f"size={size_bytes},mode=755"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"mount refused: {mounted.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def remount(place: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(place)], check=True)


def check_told(printed: str, place: Path, problem: str, remedy: str) -> None:
    """The message names a path on the disk, and what to do."""
    line = next((line for line in printed.splitlines() if line.startswith(("cannot go on: ", "error: "))), "")
    assert "Traceback" not in printed and str(place) in line and problem in line and f"remedy: {remedy}" in printed


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("undisturbed"))
    world.done()
    return world


@pytest.mark.parametrize("which", ["runs", "cache", "inodes"])
def test_a_full_disk_stops_the_run_and_loses_nothing(tmp_path: Path, undisturbed: World, which: str) -> None:
    """The disk has some share of the room that the whole run takes, so that it is full at one moment or another."""
    world, known = World(tmp_path, staged=which != "cache"), contents(undisturbed.latest)
    place = world.cache if which == "cache" else world.root / "reports" / "runs"
    whole = undisturbed.cache if which == "cache" else undisturbed.root / "reports" / "runs"
    pages = sum(-(-path.stat().st_size // 4096) for path in whole.rglob("*") if path.is_file())
    limits = [f"size={int(share * pages) * 4 * KIB}" for share in (0.1, 0.4, 0.8)]
    with disk(place, ROOM):
        for options in ["nr_inodes=30"] if which == "inodes" else limits:
            remount(place, options)
            check_told(world.done(code=30), place, "No space left on device", "free some space")
            for folder in world.runs:
                found = contents(Run(folder)) if (folder / "run.json").exists() else {}  # refuses what is half-written
                found.pop("run.json", None)
                assert {name: known[name] for name in found} == found, "what is recorded is no row of the disk's"
        kept = world.kept
        remount(place, f"size={ROOM},nr_inodes=10000")
        world.done()
        assert {path: world.kept.get(path) for path in kept} == kept and contents(world.latest) == known


def test_a_kernel_that_says_that_the_disk_is_full_has_its_row_where_it_is_not_full(tmp_path: Path) -> None:
    timing = TargetTiming(status="crashed", message="raised OSError: [Errno 28] No space left on device")
    place = {"environment": "e", "kernel": "k", "device": "cpu", "key": "", "index": 0, "position": 0}
    lie = LaunchRecord(status="ok", started_utc="", duration_s=1, timings=[timing], **place)  # type: ignore[arg-type]
    large, small = tmp_path / "large", tmp_path / "small"
    with disk(large, 2 << 30), disk(small, 1 << 20):
        refuse_without_space(lie, large)
        refuse_without_space(replace(lie, timings=[]), small)
        refuse_without_space(replace(lie, status="killed"), small)
        with pytest.raises(Exception, match="No space left on device"):
            refuse_without_space(lie, large, small / "not" / "there")


def test_a_write_that_fails_names_its_file_and_leaves_nothing(tmp_path: Path) -> None:
    with disk(tmp_path / "small", 16 * KIB):
        target = tmp_path / "small" / "record.json"
        protocol.write_atomically(str(target), b"before")
        with pytest.raises(OSError, match="No space left") as caught:
            protocol.write_atomically(str(target), b"x" * (1 << 20))
        assert caught.value.filename == str(target)
        assert target.read_bytes() == b"before" and [path.name for path in target.parent.iterdir()] == ["record.json"]


@pytest.mark.parametrize("which", ["reports", "runs", "cache", "locks"])
def test_a_folder_of_another_user_is_named(which: str) -> None:
    folder = Path(f"/tmp/kernel-matrix-faults-{os.getpid()}")  # which others can reach, unlike a test's own
    folder.mkdir(mode=0o755)
    try:
        world = World(folder)
        world.cache.mkdir()
        place = {"reports": world.root, "runs": world.root / "reports" / "runs", "cache": world.cache}.get(which)
        place = place or world.cache / "locks"
        place.mkdir(parents=True, exist_ok=True)
        for path in {world.root, world.cache} - {place}:
            os.chown(path, NOBODY, NOBODY)
        if which == "runs":
            os.chown(world.root / "reports", NOBODY, NOBODY)
        assert world.end(world.start(user=NOBODY)) in (30, 64), world.text
        check_told(world.text, place, "ermission denied", "")
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("which", ["reports", "cache"])
def test_a_disk_that_is_mounted_for_reading_only_is_named(tmp_path: Path, which: str) -> None:
    world = World(tmp_path)
    place = world.root / "reports" if which == "reports" else world.cache
    with disk(place, ROOM):
        remount(place, "ro")
        check_told(world.done(code=30), place, "ead-only file system", "make it writable")
        remount(place, "rw")
        world.done()


@pytest.mark.environments
def test_real_tasks_on_a_full_disk_blame_nobody(tmp_path: Path) -> None:
    """Outputs, ground truths, arrays and results of the environment's own processes. The disk grows, each time by too
    little, so that it is full in one of them after the other."""
    project = make_project(tmp_path / "project", head("2.5.0") + SHIPPED)
    place, command = project / "reports" / "runs", ("matrix", "--launches=1", "--device=cpu")
    with disk(place, 40 * KIB):
        for size_bytes in (40 * KIB, 200 * KIB, 400 * KIB, 600 * KIB):
            remount(place, f"size={size_bytes}")
            code, printed, _ = start(project, *command)
            assert code == 30, printed
            check_told(printed, place, "No space left on device", "free some space")
            for folder in place.iterdir():
                rows = [*Run(folder).validations(), *Run(folder).launches(), *Run(folder).builds()]
                assert {row.status for row in rows} <= {"ok"}, rows
        remount(place, f"size={ROOM}")
        code, printed, run = start(project, *command)
        assert code == 0, printed
        assert {row.status for row in [*run.validations(), *run.launches(), *run.builds()]} == {"ok"}
