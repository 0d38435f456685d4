"""Packing and unpacking by the real programs: a round trip, and every way in which it must not go on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import InfrastructureError, InputError
from harness.isolate.bundle.archive import measure
from harness.isolate.bundle.launchers import LAUNCHERS
from harness.isolate.bundle.manifest import SHARED, load_bundle
from tests.unit.bundles import CHAINED, CHANGED, ENVIRONMENTS, make_bundle, unpack

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(shutil.which("zstd") is None, reason="no zstd here: apt-get install zstd"),
]
FIRST, SECOND = ENVIRONMENTS
SHELLS = [
    pytest.param(shell, marks=pytest.mark.skipif(shutil.which(shell.split()[0]) is None, reason=f"no {shell} here"))
    for shell in ("sh", "dash", "bash --posix", "busybox sh")
]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    make_bundle(folder / "out", folder / "work")
    return folder


@pytest.fixture
def out(packed: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(packed / "out", tmp_path / "carried over"))


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Programs of the machine that a test replaces."""
    folder = tmp_path / "programs"
    folder.mkdir()
    return folder


def replace(programs: Path, name: str, script: str) -> None:
    (programs / name).write_text(f"#!/bin/sh\n{script}\n")
    (programs / name).chmod(0o755)


def refused(out: Path, target: Path, *arguments: str, programs: Path | None = None, code: int = 30) -> str:
    """What unpack.sh said when it did not go on: with a remedy, and before it unpacked anything."""
    done = unpack(out, *arguments, target, programs=programs)
    assert done.returncode == code, done.stdout + done.stderr
    assert "remedy: " in done.stderr
    assert not (target / "root").exists() and not (target / "complete.json").exists()
    return done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_what_was_packed_is_unpacked(packed: Path, out: Path, tmp_path: Path, shell: str) -> None:
    target = tmp_path / "a target"
    done = unpack(out, target, shell=shell)
    assert done.returncode == 0, done.stderr
    bundle = load_bundle(target)
    assert bundle.environments == (*ENVIRONMENTS, CHANGED, CHAINED)
    assert len([part for part in bundle.manifest.parts if part.archive == FIRST]) > 1
    for id in ENVIRONMENTS:
        tally = measure({"": bundle.environment(id)})
        archive = bundle.manifest.archives[id]
        assert (tally.sha256, tally.bytes, len(tally)) == (archive.tree_sha256, archive.unpacked_bytes, archive.files)
        assert tally.sha256 == measure({"": packed / "work" / id}).sha256
        program = bundle.environment(id) / "bin" / "program"
        assert subprocess.run([program], capture_output=True, text=True).stdout.strip() == id
        source = packed / "work" / id / "bin" / "program"
        assert int(program.stat().st_mtime) == int(source.stat().st_mtime), "Python trusts bytecode by it"
    shared = measure({name: target / name for name in ("root", "packages", *LAUNCHERS)})
    assert shared.sha256 == bundle.manifest.archives[SHARED].tree_sha256
    others = ("complete.json", "environments", "manifest.json", "packages", "root")
    assert {path.name for path in target.iterdir()} == {*others, *LAUNCHERS}


LINKS = [pytest.param("", id="links"), pytest.param("exit 1", id="no links")]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("linking", LINKS)
def test_a_difference_becomes_a_whole_environment(
    packed: Path, out: Path, tmp_path: Path, programs: Path, shell: str, linking: str
) -> None:
    cp, tar, target = shutil.which("cp"), shutil.which("tar"), tmp_path / "a target"
    replace(programs, "cp", f'case $1 in -al) {linking or ":"} ;; esac\nexec {cp} "$@"')
    replace(programs, "tar", f'case $1 in -xof) set -- --overwrite "$@" ;; esac\nexec {tar} "$@"')
    done = unpack(out, "--only", CHANGED, target, shell=shell, programs=programs)
    assert done.returncode == 0, done.stderr
    bundle = load_bundle(target)
    assert bundle.environments == (SECOND, CHANGED), "it brings the one that it is like"
    for id in bundle.environments:
        assert measure({"": bundle.environment(id)}).sha256 == bundle.manifest.archives[id].tree_sha256
    like, changed = bundle.environment(SECOND), bundle.environment(CHANGED)
    assert measure({"": like}).sha256 == measure({"": packed / "work" / SECOND}).sha256, "written through no link"
    assert not (changed / ("long-" * 40)).exists() and (changed / "empty").read_text() == "a file now"
    assert subprocess.run([changed / "bin" / "program"], capture_output=True, text=True).stdout == f"{CHANGED}\n"
    assert (changed / "noise").samefile(like / "noise") == (not linking)
    for name in ("package/same.py", "package/__pycache__/same.cpython-311.pyc"):
        assert (changed / name).stat().st_mtime_ns == (like / name).stat().st_mtime_ns
    assert (changed / "package" / "__pycache__" / "same.cpython-311.pyc").read_text() == "of a = 1", "as its source's"
    archive = bundle.manifest.archives[CHANGED]
    assert archive.like == SECOND and archive.unpacked_bytes < 1000 < bundle.manifest.archives[SECOND].unpacked_bytes


def test_a_difference_to_a_difference_brings_both(out: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    done = unpack(out, "--only", CHAINED, target)
    assert done.returncode == 0, done.stderr
    bundle = load_bundle(target)
    assert bundle.environments == (SECOND, CHANGED, CHAINED)
    assert [bundle.manifest.archives[id].like for id in bundle.environments] == ["", SECOND, CHANGED]
    for id in bundle.environments:
        assert measure({"": bundle.environment(id)}).sha256 == bundle.manifest.archives[id].tree_sha256


def test_a_difference_can_be_added(out: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    assert unpack(out, "--only", SECOND, target).returncode == 0
    kept = (target / "environments" / SECOND).stat().st_ino
    done = unpack(out, "--only", CHANGED, target)
    assert done.returncode == 0 and f"unpacking {SECOND}\n" not in done.stdout
    assert (target / "environments" / SECOND).stat().st_ino == kept
    assert load_bundle(target).environments == (SECOND, CHANGED)


def test_a_second_call_finds_it_there(out: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    assert unpack(out, target).returncode == 0
    before = (target / "complete.json").stat().st_mtime_ns
    again = unpack(out, target)
    assert again.returncode == 0 and "already there" in again.stdout
    assert (target / "complete.json").stat().st_mtime_ns == before


def test_environments_can_be_left_out_and_added(out: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    for part in out.glob(f"{SECOND}*"):
        part.rename(out.parent / part.name)  # what is not wanted need not be carried
    assert unpack(out, "--only", FIRST, target).returncode == 0
    bundle = load_bundle(target)
    assert bundle.environments == (FIRST,) and bundle.entry(FIRST).cuda == "12.4"
    with pytest.raises(InputError, match="was not unpacked") as caught:
        bundle.entry(SECOND)
    assert f"--only {SECOND}" in caught.value.remedy
    kept = (target / "root").stat().st_ino
    for part in out.parent.glob(f"{SECOND}.*"):
        part.rename(out / part.name)
    assert unpack(out, f"--only={SECOND}", target).returncode == 0
    assert load_bundle(target).environments == ENVIRONMENTS and (target / "root").stat().st_ino == kept


def test_a_missing_part_is_named(out: Path, tmp_path: Path) -> None:
    (out / f"{FIRST}.tar.zst.0001").unlink()
    (out / "shared.tar.zst.0000").unlink()
    said = refused(out, tmp_path / "target")
    assert f"parts are missing: shared.tar.zst.0000 {FIRST}.tar.zst.0001" in said


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data[:99_999], "has 99999 bytes instead of 100000"),
        (lambda data: data[:50_000] + bytes([data[50_000] ^ 1]) + data[50_001:], "is damaged: its SHA-256"),
    ],
    ids=["truncated", "corrupted"],
)
def test_a_damaged_part_is_named(out: Path, tmp_path: Path, damage: Callable[[bytes], bytes], said: str) -> None:
    part = out / f"{SECOND}.tar.zst.0001"
    part.write_bytes(damage(part.read_bytes()))
    assert f"{part.name} {said}" in refused(out, tmp_path / "target")


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("manifest.json", b"{}", "manifest.json is damaged"),
        ("contents.txt", b"format 1\n", "contents.txt is not whole"),
        ("contents.txt", b"format 2\nend 1\n", "a bundle of format 2"),
        ("contents.txt", None, "contents.txt is missing"),
        ("tools.tar", None, "tools.tar is missing"),
        ("tools.tar", b"no tar", "tools.tar cannot be unpacked"),
    ],
)
def test_what_lies_beside_the_parts_is_checked(
    out: Path, tmp_path: Path, name: str, damage: bytes | None, said: str
) -> None:
    (out / name).unlink()
    if damage is not None:
        (out / name).write_bytes(damage)
    assert said in refused(out, tmp_path / "target")


def test_a_contents_file_that_lost_its_end_is_refused(out: Path, tmp_path: Path) -> None:
    lines = (out / "contents.txt").read_text().splitlines(keepends=True)
    (out / "contents.txt").write_text("".join([*lines[:-3], lines[-1]]))
    assert "contents.txt is not whole" in refused(out, tmp_path / "target")


TOO_OLD = "the NVIDIA driver here is {}; these wheels need 525.60.13 or newer"


@pytest.mark.parametrize(
    ("program", "script", "said"),
    [
        ("uname", "echo aarch64", "this machine is aarch64; the bundle is for x86_64"),
        ("df", "echo Filesystem; echo /dev/x 9 8 1024 9% /", "1 MiB are free there, and"),
        (
            "nvidia-smi",
            "echo '8.0, 550.54.15'; echo '8.6, 550.54.15'",
            "compute capability 90; the GPUs here are of 8.0 8.6",
        ),
        *(
            ("nvidia-smi", f"echo '9.0, {driver}'", TOO_OLD.format(driver))
            for driver in ("470.57.02", "525.60", "525.60.12", "99.99.99")
        ),
    ],
)
def test_a_machine_that_cannot_run_or_hold_it_is_refused(
    out: Path, tmp_path: Path, programs: Path, program: str, script: str, said: str
) -> None:
    replace(programs, program, script)
    assert said in refused(out, tmp_path / "target", programs=programs)


NO_GPU = "note: no GPU is seen here"


@pytest.mark.parametrize(
    ("script", "options", "said"),
    [
        *(
            (f"echo '8.0, {driver}'; echo '9.0, {driver}'", [], "")
            for driver in ("525.60.13", "525.105.17", "550.54", "1000.1")
        ),
        ("echo '8.6, 550.54.15'", ["--any-gpu"], ""),
        ("echo 'NVIDIA-SMI has failed'; exit 9", [], NO_GPU),
    ],
)
def test_a_fitting_machine_is_taken(
    out: Path, tmp_path: Path, programs: Path, script: str, options: list[str], said: str
) -> None:
    replace(programs, "nvidia-smi", script)
    done = unpack(out, *options, tmp_path / "target", programs=programs)
    assert done.returncode == 0 and (NO_GPU in done.stdout) is bool(said), done.stdout + done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.57.02  Tue Jul 13 16:14:05 UTC 2021",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  470.57.02  Release Build  (dvs-builder@U16)",
    ],
)
def test_a_driver_that_nvidia_smi_does_not_tell_of_is_found(
    out: Path, tmp_path: Path, programs: Path, line: str
) -> None:
    (tmp_path / "version").write_text(line + "\n")
    script = out / "unpack.sh"
    script.write_text(script.read_text().replace("/proc/driver/nvidia/version", str(tmp_path / "version")))
    replace(programs, "nvidia-smi", "exit 9")
    assert "the NVIDIA driver here is 470.57.02" in refused(out, tmp_path / "target", programs=programs)


def test_a_folder_in_use_is_refused(out: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / ".something").write_text("mine")
    assert "is not empty" in refused(out, target, code=64)
    assert (target / ".something").read_text() == "mine"
    assert "is a file" in refused(out, target / ".something", code=64)


def test_another_bundle_is_not_mixed_in(out: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    assert unpack(out, target).returncode == 0
    make_bundle(tmp_path / "other", tmp_path / "work")
    done = unpack(tmp_path / "other", target)
    assert done.returncode == 64 and "holds another bundle" in done.stderr


@pytest.mark.parametrize(
    "arguments", [[], ["--wrong", "x"], ["x", "y"], ["--only"], ["--only", "torch9", "x"], ["--only", "shared", "x"]]
)
def test_wrong_arguments_are_refused(out: Path, tmp_path: Path, arguments: list[str]) -> None:
    done = unpack(out, *arguments, cwd=tmp_path)
    assert done.returncode == 64 and "remedy: " in done.stderr
    assert not (tmp_path / "x").exists()


def test_what_was_interrupted_is_unpacked_anew(out: Path, tmp_path: Path, programs: Path) -> None:
    """tar is held up at the second environment; the whole group of processes is killed there."""
    tar, target = shutil.which("tar"), tmp_path / "target"
    replace(programs, "tar", f'[ ! -d "{target}/environments/{FIRST}" ] || exec sleep 600\nexec {tar} "$@"')
    child = subprocess.Popen(
        ["sh", str(out / "unpack.sh"), str(target)],
        env={"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
    )
    while not (target / ".part" / "tree").exists() or not (target / "environments" / FIRST).exists():
        assert child.poll() is None
        time.sleep(0.01)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    with pytest.raises(InfrastructureError, match="was not unpacked to the end") as caught:
        load_bundle(target)
    assert "once more" in caught.value.remedy
    (target / ".part" / "tree").mkdir(exist_ok=True)
    (target / ".part" / "tree" / "rubbish").write_text("of the interrupted one")
    kept = (target / "environments" / FIRST).stat().st_ino
    assert unpack(out, target).returncode == 0
    bundle = load_bundle(target)
    assert measure({"": bundle.environment(SECOND)}).sha256 == bundle.manifest.archives[SECOND].tree_sha256
    assert (target / "environments" / FIRST).stat().st_ino == kept, "what was whole is not unpacked again"


def test_a_disk_that_fills_up_is_said(out: Path, tmp_path: Path, programs: Path) -> None:
    tar = shutil.which("tar")
    replace(programs, "tar", f'case " $* " in *tools.tar*) exec {tar} "$@" ;; esac\nhead -c 1000 >/dev/null; exit 2')
    done = unpack(out, tmp_path / "target", programs=programs)
    assert done.returncode == 30 and "shared could not be unpacked" in done.stderr
    assert not (tmp_path / "target" / "root").exists()
    assert unpack(out, tmp_path / "target").returncode == 0, "the same command goes on"


def test_a_manifest_changed_after_unpacking_is_seen(out: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    assert unpack(out, target).returncode == 0
    (target / "manifest.json").write_text((target / "manifest.json").read_text() + " ")
    with pytest.raises(InputError, match="not the manifest that was unpacked"):
        load_bundle(target)
    shutil.rmtree(target / "environments" / FIRST)
    unpack(out, target)
    with pytest.raises(InputError):
        load_bundle(target)
