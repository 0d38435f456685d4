"""Whole runs by executor `bundle` in a real bundle, unpacked: as root, and as a user without rights."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pynvml  # noqa: F401 - before a fork becomes another user, who may not be able to read this Python's packages
import pytest

from harness.isolate.bundle.manifest import load_bundle
from harness.isolate.sandbox import TASK_USER
from harness.schema.storage import Run
from harness.worker import protocol
from tests.conftest import ROOT
from tests.container.cells import BUNDLED
from tests.container.project import docker_run
from tests.container.unpacked import NOBODY, mounted, readable, snapshot
from tests.projects import SHIPPED, check_measured, command, head, latest, make_project, outputs

pytestmark = [pytest.mark.container, pytest.mark.timeout(1500)]


def bundle_run(
    project: Path, bundle: Path, *arguments: str, user: int | None = None, cache: Path
) -> tuple[int, str, Run]:
    options: dict[str, Any] = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    done = subprocess.run(
        command(project, "matrix", f"--bundle={bundle}", *arguments),
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "KERNEL_MATRIX_CACHE": str(cache), "HOME": str(cache), "PYTHONDONTWRITEBYTECODE": "1"},
        **options,
    )
    return done.returncode, done.stdout + done.stderr, latest(project)


@pytest.fixture(scope="module")
def as_root(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    """(the project, its run) in the bundle, as root."""
    folder = tmp_path_factory.mktemp("bundle")
    project = make_project(folder / "project", head("2.5.0") + SHIPPED)
    before = snapshot(unpacked)
    code, printed, run = bundle_run(project, unpacked, cache=folder / "cache")
    assert code == 0, printed
    made = load_bundle(unpacked).manifest.created_utc[:10]
    assert f"executor: a bundle of {made} for sm_90; sandboxes as another user" in printed
    assert snapshot(unpacked) == before, "the bundle was written to"
    return project, run


def test_a_matrix_runs_in_an_unpacked_bundle(as_root: tuple[Path, Run], unpacked: Path) -> None:
    run = as_root[1]
    (environment,) = run.environments()
    assert environment.executor == "bundle" and environment.id == BUNDLED
    check_measured(run, launches=2)
    assert run.load().bundle["manifest"] == load_bundle(unpacked).manifest_sha256
    seen = environment.observed and environment.observed.confinement
    assert seen and (seen.user_id, seen.no_new_privileges, int(seen.capabilities, 16)) == (TASK_USER, True, 0)
    assert seen.networks == ["lo"] and not seen.root_writable


def test_its_outputs_are_the_container_s_bit_for_bit(as_root: tuple[Path, Run], tmp_path: Path, image: str) -> None:
    project = make_project(tmp_path / "project", head("2.5.0") + SHIPPED)
    finished, _ = docker_run(project, "--launches=1")
    assert finished.code == 0, finished.printed
    theirs = outputs(finished.run)
    assert outputs(as_root[1]) == theirs and len(theirs) == 3 * 4


def test_nothing_is_left_mounted_or_running(as_root: tuple[Path, Run], unpacked: Path) -> None:
    assert not mounted(str(unpacked)) and not mounted(str(as_root[0]))


def test_without_root_it_runs_the_same(unpacked: Path, as_root: tuple[Path, Run]) -> None:
    able = (
        subprocess.run(
            [sys.executable, "-c", "import harness.workflow.matrix"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
        )
        if readable(Path(sys.executable))
        else None
    )
    if able is None or able.returncode:
        pytest.skip("another user cannot run this Python, or read this checkout")
    folder = Path(tempfile.mkdtemp(prefix="kernel-matrix-"))
    try:
        project = make_project(folder / "project", head("2.5.0") + SHIPPED)
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, NOBODY, NOBODY)
        code, printed, run = bundle_run(project, unpacked, user=NOBODY, cache=folder / "cache")
        if "grants no root of its own" in printed:
            pytest.skip(f"this machine refuses user namespaces: {printed[-300:]}")
        assert code == 0 and "sandboxes in a user namespace" in printed, printed
        assert outputs(run) == outputs(as_root[1])
        assert not mounted(str(folder))
    finally:
        shutil.rmtree(folder)


def test_what_the_bundle_lacks_is_said_before_anything_runs(unpacked: Path, tmp_path: Path) -> None:
    project = make_project(tmp_path / "project", head("2.1.0", "2.5.0") + SHIPPED)
    code, printed, _ = bundle_run(project, unpacked, cache=tmp_path / "cache")
    assert code == 64 and "has no torch2.1.0-cu121-py311; it has torch2.5.0" in printed
    assert not (project / "reports" / "runs").exists()


def test_other_bits_are_broken_with_their_name(unpacked: Path, tmp_path: Path) -> None:
    copy = tmp_path / "bundle"
    copy.mkdir()
    for name in ("root", "environments", "python"):
        (copy / name).symlink_to(unpacked / name)
    manifest = json.loads((unpacked / "manifest.json").read_text())
    manifest["environments"][BUNDLED]["proof"]["digests"]["cpu/math/fp32"] = "0" * 64
    (copy / "manifest.json").write_text(json.dumps(manifest))
    digest = protocol.sha256_file(str(copy / "manifest.json"))
    (copy / "complete.json").write_text(json.dumps({"manifest_sha256": digest, "environments": [BUNDLED]}))
    project = make_project(tmp_path / "project", head("2.5.0") + SHIPPED)
    code, printed, run = bundle_run(project, copy, "--launches=1", cache=tmp_path / "cache")
    assert code == 30, printed
    (environment,) = run.environments()
    assert environment.status == "broken" and "cpu/math/fp32: not the bits of before packing" in environment.message
