"""Engines that are elsewhere, absent, go away in the middle, come back, or have no room left."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.config.environments import PYPI
from harness.config.matrix import Matrix
from harness.config.plan import PlannedEnvironment
from harness.errors import HarnessError, InfrastructureError, Unrecorded
from harness.executors import Answer
from harness.executors import docker as executor
from harness.executors.engine import Engine
from harness.executors.images import base_identity, build_image
from harness.schema.storage import Run
from tests.conftest import ROOT
from tests.container.cells import LIMITS, Cells
from tests.container.conftest import BASE, planned
from tests.container.engines import SecondEngine, Wire, until
from tests.container.project import (
    DOCKER,
    begin,
    containers_of,
    docker_run,
    launches,
    make_small_project,
    now_in,
    printed,
)
from tests.projects import attempt, command, latest

pytestmark = [pytest.mark.container, pytest.mark.timeout(900)]

NO_ENGINE = {"DOCKER_HOST": "unix:///nowhere.sock"}


@pytest.fixture(params=["DOCKER_HOST", "DOCKER_CONTEXT", "current context", "tcp"])
def elsewhere(
    request: pytest.FixtureRequest, second: SecondEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """The second engine, named in one of the ways that `docker` knows."""
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.delenv("DOCKER_CONTEXT", raising=False)
    if request.param in ("DOCKER_HOST", "tcp"):
        monkeypatch.setenv("DOCKER_HOST", second.address if request.param == "DOCKER_HOST" else second.tcp)
        return str(request.param)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "config"))
    create = ["docker", "context", "create", "other", f"--docker=host={second.address}"]
    subprocess.run(create, check=True, capture_output=True)
    if request.param == "DOCKER_CONTEXT":
        monkeypatch.setenv("DOCKER_CONTEXT", "other")
    else:
        subprocess.run(["docker", "context", "use", "other"], check=True, capture_output=True)
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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DOCKER_HOST", "unix:///nowhere.sock"),
        ("DOCKER_HOST", "tcp://127.0.0.1:9"),
        ("DOCKER_HOST", "nonsense://x"),
        ("DOCKER_TLS_VERIFY", "1"),
    ],
)
def test_an_engine_that_cannot_be_had_is_one_error(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:9")
    monkeypatch.setenv(name, value)
    if name == "DOCKER_TLS_VERIFY":
        monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
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


@pytest.fixture
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    laid = Wire(tmp_path_factory.mktemp("wire") / "docker.sock")
    yield laid
    laid.cut()


@pytest.mark.parametrize("at_once", [True, False], ids=["for a moment", "until it is missed"])
def test_an_engine_that_comes_back_costs_nothing(image: str, wire: Wire, tmp_path: Path, at_once: bool) -> None:
    project = make_small_project(tmp_path / "project")
    child = begin(project, "--launches=2", variables={"DOCKER_HOST": wire.address})
    until(lambda: now_in(project, "launch"), "a launch", timeout_s=300)
    wire.cut()
    if not at_once:
        until(lambda: "does not answer; waiting" in printed(project), "the harness missing its engine")
    wire.mend()
    assert child.wait() == 0, printed(project)
    run = latest(project)
    assert [launch.status for launch in run.launches()] == ["ok", "ok"]
    assert {validation.status for validation in run.validations()} == {"ok"}
    assert all(t.status == "ok" for launch in run.launches() for t in launch.timings)
    until(lambda: not containers_of(child.pid), "no container left")


def test_an_engine_that_stays_away_ends_the_run_and_nothing_is_lost(image: str, wire: Wire, tmp_path: Path) -> None:
    project = make_small_project(tmp_path / "project")
    child = begin(project, "--launches=3", variables={"DOCKER_HOST": wire.address}, impatient=True)
    until(lambda: len(launches(project)) == 1 and now_in(project, "launch"), "the second launch", timeout_s=300)
    wire.cut()
    assert child.wait(60) == 30, printed(project)
    said = printed(project)
    assert f"the container engine at {wire.address} went away" in said.replace("http+unix", "unix"), said
    assert "remedy: start it" in said and "the same command" in said and "Traceback" not in said
    kept = launches(project)
    assert len(kept) == 1
    until(lambda: not containers_of(child.pid), "no container left")

    wire.mend()
    (code, said, run), _ = docker_run(project, "--launches=3", variables={"DOCKER_HOST": wire.address})
    assert code == 0, said
    assert len(run.launches()) == 3 and {launch.status for launch in run.launches()} == {"ok"}
    assert launches(project).items() >= kept.items() and "validated before" in said


def test_an_engine_that_goes_away_while_environments_are_made_ends_the_run(
    image: str, wire: Wire, tmp_path: Path
) -> None:
    """Before anything is prepared, nobody waits: the message is the same."""
    project = make_small_project(tmp_path / "project")
    child = begin(project, "--launches=1", variables={"DOCKER_HOST": wire.address}, impatient=True)
    until(lambda: containers_of(child.pid), "the first cell", timeout_s=120)
    wire.cut()
    assert child.wait(60) == 30, printed(project)
    assert "went away" in printed(project) and "Traceback" not in printed(project)
    runs = [Run(path.parent) for path in (project / "reports" / "runs").glob("*/run.json")]
    assert all(not run.environments() for run in runs), "what was not made is not broken either"


@contextlib.contextmanager
def killed(second: SecondEngine, cells: Cells, sleep_s: float) -> Iterator[Future[Answer]]:
    """A cell on the second engine, which is killed once that has begun."""
    task = cells.task(f"import time\nprint('began', flush=True)\ntime.sleep({sleep_s})\nresult['done'] = True")
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(cells.executor.run, task)
        until(lambda: task.log.exists() and b"began" in task.log.read_bytes(), "a cell")
        second.kill()
        yield answer


def test_a_killed_dockerd_that_is_started_again_costs_nothing(
    second: SecondEngine, small: str, at: Callable[[str], Engine], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with killed(second, Cells(at(second.address), small, tmp_path), 2) as answer:
        second.start()
        assert answer.result(60).result == {"done": True}
    assert "the container engine does not answer; waiting" in capsys.readouterr().out
    until(lambda: not containers_of(os.getpid(), second.address), "no container left")


def test_a_dockerd_that_stays_dead_is_an_error(
    second: SecondEngine, small: str, at: Callable[[str], Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "AWAY_S", 1.0)
    cells = Cells(at(second.address), small, tmp_path)
    try:
        with killed(second, cells, 600) as answer, pytest.raises(Unrecorded, match="went away"):
            answer.result(60)
        with pytest.raises(Unrecorded):
            Engine()
    finally:
        second.start()
    cells.executor.engine.remove_lost()  # a killed engine does not always do so
    until(lambda: not containers_of(os.getpid(), second.address), "no container left")


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
    with second.full(left_bytes=0), pytest.raises(HarnessError, match="disk is full"):
        Cells(engine, small, tmp_path, LIMITS)("result['x'] = 1")
    assert Cells(engine, small, tmp_path, LIMITS).result("result['x'] = 1") == {"x": 1}
