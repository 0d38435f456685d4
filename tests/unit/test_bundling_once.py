"""A packed bundle is unpacked once on a machine, and the one that was used longest ago makes room."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import InfrastructureError, InputError
from harness.isolate.bundle import once
from harness.isolate.bundle.manifest import load_bundle
from tests.conftest import ROOT
from tests.unit.bundles import make_bundle, make_unpacked

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(shutil.which("zstd") is None, reason="no zstd here: apt-get install zstd"),
]
USE = """
import sys
from pathlib import Path
from harness.isolate.bundle.once import unpacked
print(unpacked(Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(once.FOLDER, str(tmp_path / "node"))
    monkeypatch.setattr(once, "_in_use", {})
    make_bundle(tmp_path / "packed", tmp_path / "work")
    return tmp_path / "packed"


def test_it_is_unpacked_once(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = once.unpacked(packed)
    assert load_bundle(place).environments and "unpacking" in capsys.readouterr().out
    made = place.stat().st_mtime_ns
    assert once.unpacked(packed) == place and place.stat().st_mtime_ns == made and not capsys.readouterr().out


def test_two_at_once_unpack_it_once(packed: Path) -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", USE, str(packed)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    said = [child.communicate("")[0].splitlines() for child in children]
    assert said[0][-1] == said[1][-1] and sorted(map(len, said)) == [1, 2]


def test_what_was_used_longest_ago_makes_room_but_nothing_that_is_used(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundles = tmp_path / "node" / "bundles"
    for name, used in (("old", 1), ("older", 0), ("new", 2), ("in use", -1)):
        (bundles / name).mkdir(parents=True)
        (bundles / name / "file").write_bytes(bytes(1000))
        (bundles / f"{name}.used").touch()
        os.utime(bundles / f"{name}.used", (used, used))
    child = subprocess.Popen(["flock", "--shared", str(bundles / "in use.used"), "cat"], stdin=subprocess.PIPE)
    try:
        while once._is_free(bundles / "in use"):
            pass
        _, size = once.contents(packed / "contents.txt")
        monkeypatch.setenv(once.ROOM, str((size + 2500) / (1 << 30)))
        place = once.unpacked(packed)
        assert {path.name for path in bundles.iterdir() if path.is_dir()} == {place.name, "new", "in use"}
    finally:
        child.communicate()


def test_what_cannot_be_unpacked_is_told_and_an_unpacked_one_is_taken_as_it_is(packed: Path, tmp_path: Path) -> None:
    part = next(packed.glob("*part*"), None) or next(path for path in packed.iterdir() if "zst" in path.name)
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(InfrastructureError, match="is not whole") as caught:
        once.unpacked(packed)
    assert caught.value.remedy == "copy it again"
    (packed / "contents.txt").write_text("format 1\n")
    with pytest.raises(InputError, match="damaged"):
        once.unpacked(packed)
    whole = make_unpacked(tmp_path / "whole")
    assert once.unpacked(whole) == whole
