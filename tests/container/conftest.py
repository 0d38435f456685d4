"""A real engine, real images, and cells that run any code: what every test of containers starts from."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.config.environments import PYPI
from harness.config.matrix import Matrix, load_matrix
from harness.config.pins import ensure_pins
from harness.config.plan import PlannedEnvironment
from harness.errors import HarnessError
from harness.executors.bwrap import grant
from harness.executors.docker import DockerExecutor
from harness.executors.engine import Engine
from harness.executors.images import base_identity, build_image
from harness.executors.sandbox import SandboxLimits
from harness.tools import cache_folder
from tests.conftest import ROOT
from tests.container.cells import SYSTEM_PYTHON, AnyCells, BwrapCells, Cells
from tests.container.engines import SecondEngine

NOBODY = 65534
BASE = os.environ.get("HARNESS_TEST_BASE", "kernel-matrix/base:bookworm-cuda12.4")


@pytest.fixture(scope="session")
def engine() -> Engine:
    """The machine's own engine, with the base image. A skip says what is missing."""
    if os.geteuid() != 0:
        pytest.skip("not root: these tests mount disks and start engines")
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("DOCKER_HOST", raising=False)
            patch.delenv("DOCKER_CONTEXT", raising=False)
            found = Engine()
    except HarnessError as error:
        pytest.skip(f"no container engine: {error.message}")
    if found.image(BASE) is None:
        pytest.skip(f"no base image {BASE}: nox -s images -- base")
    return found


@pytest.fixture(scope="session")
def matrix() -> Matrix:
    return load_matrix(ROOT / "matrix.yaml")[0].with_base(BASE)


def planned(matrix: Matrix, torch: str) -> PlannedEnvironment:
    spec = next(environment for environment in matrix.environments if environment.torch == torch)
    return PlannedEnvironment(spec=spec, index=PYPI)


@pytest.fixture(scope="session")
def image(engine: Engine, matrix: Matrix, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The id of the real image of 2.5.0, built where it is not there, and proven."""
    environment = planned(matrix, "2.5.0")
    executor = DockerExecutor(
        engine,
        ROOT,
        cache_folder(),
        2,
        limits=SandboxLimits(memory_bytes=4 << 30, processes=1024, output_bytes=1 << 30, output_files=65536),
    )
    record = executor.prepare(environment, ensure_pins(ROOT, environment, matrix)[0])
    assert record.status == "ok", record.message
    return record.image


@pytest.fixture(scope="session")
def cells(engine: Engine, image: str, tmp_path_factory: pytest.TempPathFactory) -> Cells:
    return Cells(engine, image, tmp_path_factory.mktemp("cells"))


def make_bwrap_cells(folder: Path, *, rootless: bool) -> BwrapCells:
    """Return sandboxes of bubblewrap, in a user namespace or as another user. A skip says why there are none."""
    found, why = grant()
    if found is None or (not rootless and os.geteuid() != 0):
        pytest.skip(f"no sandbox here: {why or 'not root'}")
    if not rootless or os.geteuid() != 0:
        return BwrapCells(found, folder)
    if not Path(SYSTEM_PYTHON).exists():
        pytest.skip(f"no {SYSTEM_PYTHON} here, and another user cannot read this Python")
    for parent in (folder, *folder.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o011)
    return BwrapCells(replace(found, rootless=True, options=()), folder, NOBODY)


@pytest.fixture(scope="module", params=["root", "rootless"])
def bwrap_cells(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> BwrapCells:
    return make_bwrap_cells(tmp_path_factory.mktemp("bwrap"), rootless=request.param == "rootless")


@pytest.fixture(scope="module", params=["container", "root", "rootless"])
def any_cells(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AnyCells:
    """Sandboxes of each kind."""
    if request.param == "container":
        found: AnyCells = request.getfixturevalue("cells")
        return found
    return make_bwrap_cells(tmp_path_factory.mktemp("bwrap"), rootless=request.param == "rootless")


@pytest.fixture(scope="session")
def second(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecondEngine]:
    """Another engine, with the base image."""
    if shutil.which("dockerd") is None:
        pytest.skip("no dockerd here: the machine's engine runs elsewhere")
    if shutil.which("ip") is None:
        pytest.skip("no ip here: apt-get install iproute2")
    started = SecondEngine(tmp_path_factory.mktemp("second"), size="4g")
    try:
        archive = started.folder / "disk" / "base.tar"
        engine.call("save", f"--output={archive}", BASE, timeout_s=600)
        started.docker("load", "--input", str(archive))
        archive.unlink()
        yield started
    finally:
        started.remove()


@pytest.fixture(scope="session")
def pins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One small wheel: what an image costs without PyTorch."""
    whole = (ROOT / "docker" / "pins" / "torch2.5.0-pypi-py311.txt").read_text()
    path = tmp_path_factory.mktemp("pins") / "pins.txt"
    path.write_text(whole[whole.index("typing-extensions==") :])
    assert path.read_text().count("==") == 1
    return path


@pytest.fixture
def small(second: SecondEngine, matrix: Matrix, pins: Path, tmp_path: Path) -> str:
    """An image on the second engine, with Python and next to nothing else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", second.address)
        engine = Engine()
    base = base_identity(engine, BASE)
    return build_image(engine, planned(matrix, "2.5.0"), pins, cache=tmp_path / "small", base=base)[0].id


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Engine]:
    """An engine by its address, as DOCKER_HOST gives it."""

    def connect(address: str) -> Engine:
        monkeypatch.setenv("DOCKER_HOST", address)
        return Engine()

    return connect
