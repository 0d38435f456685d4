"""Engines that are elsewhere, absent, go away in the middle, come back, or have no room left."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.config.environments import PYPI
from harness.config.matrix import Matrix
from harness.config.plan import PlannedEnvironment
from harness.errors import HarnessError, InfrastructureError
from harness.executors.engine import Engine
from harness.executors.images import base_identity, build_image
from tests.conftest import ROOT
from tests.container.cells import LIMITS, Cells
from tests.container.conftest import BASE, planned
from tests.container.engines import SecondEngine
from tests.container.project import (
    DOCKER,
    containers_of,
    make_small_project,
)
from tests.projects import attempt, command

pytestmark = [pytest.mark.container, pytest.mark.timeout(900)]

NO_ENGINE = {"DOCKER_HOST": "unix:///nowhere.sock"}


@pytest.fixture(params=["tcp", "current context"])
def elsewhere(
    request: pytest.FixtureRequest, second: SecondEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """The second engine, named in one of the ways that `docker` knows."""
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.delenv("DOCKER_CONTEXT", raising=False)
    if request.param == "tcp":
        monkeypatch.setenv("DOCKER_HOST", second.tcp)
        return str(request.param)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "config"))
    create = ["docker", "context", "create", "other", f"--docker=host={second.address}"]
    for words in (create, ["docker", "context", "use", "other"]):
        subprocess.run(words, check=True, capture_output=True)
    return str(request.param)


def test_an_engine_elsewhere_gets_what_it_needs_by_its_connection(
    elsewhere: str, second: SecondEngine, small: str, engine: Engine, tmp_path: Path
) -> None:
    there = Engine()
    assert there.info["DockerRootDir"] != engine.info["DockerRootDir"]
    assert there.facts().local is (elsewhere != "tcp")
    assert engine.image(small) is None and there.image(small) is not None
    cells = Cells(there, small, tmp_path)
    (tmp_path / "project").mkdir()
    source = tmp_path / "project" / "kernel.py"
    source.write_text("of the project")
    stored, out = tmp_path / "stored", tmp_path / "out"
    (stored / "deep").mkdir(parents=True)
    (stored / "deep" / "bytes").write_bytes(bytes(range(256)) * 9999)
    code = """
    import os
    result["source"] = open(request["source"]).read()
    os.makedirs(request["out"] + "/deep")
    with open(request["out"] + "/deep/copy", "wb") as file:
        file.write(open(request["stored"] + "/deep/bytes", "rb").read())
    """
    request = {"source": str(source), "stored": str(stored), "out": str(out)}
    assert cells.result(code, request=request, reads=(source, stored), writes=(out,)) == {"source": "of the project"}
    assert (out / "deep" / "copy").read_bytes() == bytes(range(256)) * 9999
    assert not containers_of(os.getpid(), second.address)


def test_a_context_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("DOCKER_CONTEXT", "nowhere")
    with pytest.raises(InfrastructureError, match="nowhere") as caught:
        Engine()
    assert "docker context ls" in caught.value.remedy


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "nonsense://x"])
def test_an_engine_that_cannot_be_had_is_one_error(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", address)
    with pytest.raises(HarnessError) as caught:
        Engine()
    assert caught.value.code == 30 and caught.value.remedy


@pytest.mark.parametrize("verb", ["matrix", "images"])
def test_no_engine_is_an_error_with_a_remedy(tmp_path: Path, verb: str) -> None:
    project = make_small_project(tmp_path / "project")
    options = DOCKER if verb == "matrix" else ("list",)
    code, said = attempt(command(project, verb, *options), NO_ENGINE)
    assert code == 30 and "Traceback" not in said and "engine" in said and "remedy: start" in said


def test_auto_without_an_engine_takes_virtual_environments_and_says_why(tmp_path: Path) -> None:
    project = make_small_project(tmp_path / "project")
    code, said = attempt(command(project, "matrix", "--list"), NO_ENGINE)
    assert code == 0 and "executor: virtual environments, since no container engine answers: " in said, said


def test_a_full_disk_is_named(
    second: SecondEngine, small: str, at: Callable[[str], Engine], matrix: Matrix, tmp_path: Path
) -> None:
    engine = at(second.address)
    pins = tmp_path / "pins.txt"
    whole = (ROOT / "docker" / "pins" / "torch2.5.0-pypi-py311.txt").read_text()
    start = whole.index("numpy==")
    pins.write_text(whole[start : whole.index("\nnvidia", start)] + "\n")  # 18 MB, unpacked 60
    environment: PlannedEnvironment = planned(matrix, "2.5.0")
    assert environment.index == PYPI
    with second.full(), pytest.raises(HarnessError, match="disk is full") as caught:
        build_image(engine, environment, pins, cache=tmp_path, base=base_identity(engine, BASE))
    assert caught.value.code == 30 and "images remove" in caught.value.remedy
    assert Cells(engine, small, tmp_path, LIMITS).result("result['x'] = 1") == {"x": 1}
