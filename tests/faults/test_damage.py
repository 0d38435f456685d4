"""Damaged files of a cache are made again, and damaged outputs are refused: never read as if nothing were."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.cli.main import find_remedy
from harness.errors import InfrastructureError
from harness.schema.storage import Run
from tests.faults.scripted import Scripted, contents

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]


def first(folder: Path, pattern: str) -> Path:
    return sorted(folder.glob(pattern))[0]


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20] + b"\0" * 10)


CACHED = (
    "builds/*/build.json",
    "builds/*/out/*.so",
    "probes/*/*.json",
    "probes/*/out/*",
    "environments/*/complete.json",
)


@pytest.mark.parametrize("pattern", CACHED)
def test_a_damaged_file_of_the_cache_is_made_again(tmp_path: Path, undisturbed: Scripted, pattern: str) -> None:
    scripted = Scripted(tmp_path)
    shutil.copytree(undisturbed.cache, scripted.cache)
    path = first(scripted.cache, pattern)
    whole = path.read_bytes()
    damage(path)
    scripted.done()
    assert contents(scripted.latest) == contents(undisturbed.latest)
    assert path.read_bytes()[-20:] == whole[-20:]


def test_damaged_outputs_are_not_compared(tmp_path: Path, undisturbed: Scripted) -> None:
    scripted = Scripted(tmp_path)
    scripted.done()
    run = scripted.latest.folder
    damaged = first(run, "arrays/*/*/first-fp32.npz")
    damage(damaged)
    shutil.rmtree(run / "crossings")
    printed = scripted.done(code=64)
    assert f"{damaged}: was edited or damaged" in printed and "remedy: delete the file" in printed, printed
    damaged.unlink()
    scripted.finish_as(undisturbed)


def test_what_was_removed_while_in_use_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_MATRIX_CACHE", str(tmp_path / "cache"))

    def missing(path: Path) -> OSError:
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))

    found = find_remedy(missing(tmp_path / "cache" / "builds" / "x"), tmp_path / "matrix.yaml")
    assert isinstance(found, InfrastructureError) and "removed while it was in use" in found.message
    assert find_remedy(missing(tmp_path / "reports" / "runs" / "x"), tmp_path / "matrix.yaml") is not None
    assert find_remedy(missing(tmp_path / "elsewhere"), tmp_path / "matrix.yaml") is None, "that is a fault of ours"


def test_parts_of_a_page_are_removed_once_who_wrote_them_is_gone(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    gone, now = tmp_path / f".{ended.pid}-abc.part", tmp_path / f".{os.getpid()}-abc.part"
    gone.touch()
    now.touch()
    Run(tmp_path).sweep()
    assert not gone.exists() and now.exists()
