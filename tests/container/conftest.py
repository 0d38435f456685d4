"""A real engine, real images, and cells that run any code: what every test of containers starts from."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.config.environments import PYPI
from harness.config.matrix import Matrix, load_matrix
from harness.config.pins import ensure_pins
from harness.config.plan import PlannedEnvironment
from harness.errors import HarnessError, InfrastructureError
from harness.isolate.docker.engine import Engine
from harness.isolate.docker.executor import DockerExecutor
from harness.isolate.docker.images import base_identity, build_image
from harness.isolate.namespaces import ENTER
from harness.isolate.sandbox import SandboxLimits
from harness.tools import cache_folder
from tests.conftest import ROOT
from tests.container.cells import BUNDLED, AnyCells, BundleCells, Cells
from tests.container.engines import SecondEngine
from tests.container.unpacked import NOBODY, readable
from tests.projects import attempt

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
def place(image: str) -> Iterator[Path]:
    """The folder of a bundle of that image, packed fast, and of what it was unpacked to, which anybody may read."""
    if shutil.which("zstd") is None:
        pytest.skip("no zstd here: apt-get install zstd")
    folder = Path(tempfile.mkdtemp(prefix="kernel-matrix-bundle-"))
    folder.chmod(0o755)
    try:
        options = ["--arch=90", "--torch=2.5.0", "--level=3", "--part-mb=100", f"--base-image={BASE}"]
        code, said = attempt([sys.executable, "-m", "harness", "bundle", *options, f"--out={folder / 'out'}"])
        assert code == 0 and f"proven {BUNDLED}: 5 results bit for bit" in said, said
        code, said = attempt(["sh", folder / "out" / "unpack.sh", "--any-gpu", folder / "there"])
        assert code == 0, said
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def unpacked(place: Path) -> Path:
    return place / "there"


@pytest.fixture(scope="session")
def cells(engine: Engine, image: str, tmp_path_factory: pytest.TempPathFactory) -> Cells:
    return Cells(engine, image, tmp_path_factory.mktemp("cells"))


@contextlib.contextmanager
def opened(unpacked: Path, who: str) -> Iterator[BundleCells]:
    if who == "nobody" and not readable(ENTER):
        pytest.skip(f"another user cannot read {ENTER}")
    folder = Path(tempfile.mkdtemp(prefix="kernel-matrix-cells-"))
    try:
        yield BundleCells(unpacked, folder, NOBODY if who == "nobody" else None)
    except InfrastructureError as error:
        pytest.skip(f"this machine refuses {who} a root of its own: {error.message}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module", params=["root", "nobody"])
def bundle_cells(request: pytest.FixtureRequest, unpacked: Path) -> Iterator[BundleCells]:
    """Cells of the bundle: of root's, and of a user without rights where this machine lets one have namespaces."""
    with opened(unpacked, request.param) as found:
        yield found


@pytest.fixture(scope="module", params=["container", "root", "nobody"])
def any_cells(request: pytest.FixtureRequest) -> Iterator[AnyCells]:
    """Cells of each kind."""
    if request.param == "container":
        yield request.getfixturevalue("cells")
        return
    with opened(request.getfixturevalue("unpacked"), request.param) as found:
        yield found


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
        with engine.client() as client, archive.open("wb") as file:
            for block in client.images.get(BASE).save(named=True):
                file.write(block)
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
