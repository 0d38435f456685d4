"""A real engine, real images, and cells that run any code: what every test of containers starts from."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.config.environments import PYPI
from harness.config.matrix import Matrix, load_matrix
from harness.config.pins import ensure_pins
from harness.config.plan import PlannedEnvironment
from harness.errors import HarnessError
from harness.isolate import Answer, Task
from harness.isolate.docker.container import CellLimits
from harness.isolate.docker.engine import Engine
from harness.isolate.docker.executor import DockerExecutor
from harness.isolate.docker.images import base_identity, build_image
from harness.tools import cache_folder
from tests.conftest import ROOT
from tests.container.engines import SecondEngine, variables
from tests.messages import made

BASE = os.environ.get("HARNESS_TEST_BASE", "kernel-matrix/base:bookworm-cuda12.4")
BUNDLED = "torch2.5.0-pypi-py311"  # what the bundle of these tests has
LIMITS = CellLimits(memory_bytes=512 << 20, processes=96, output_bytes=64 << 20, output_files=4096)

# In place of harness/worker: a verb that runs the code of its request as the code under test would run.
WORKER = """\
import json, sys
verb, asked, answered = sys.argv[1:]
request = json.load(open(asked))
result = {}
exec(request["code"])
with open(answered + ".part", "w") as file:
    json.dump(result, file)
import os
os.replace(answered + ".part", answered)
"""


@pytest.fixture(scope="session")
def engine() -> Engine:
    """The machine's own engine, with the base image. A skip says what is missing."""
    if os.geteuid() != 0:
        pytest.skip("not root: these tests mount disks and start engines")
    try:
        with variables({"DOCKER_HOST": None, "DOCKER_CONTEXT": None}):
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
    return PlannedEnvironment(id=spec.id(PYPI), spec=spec, index=PYPI)


def stage_code(folder: Path) -> Path:
    """An executor's `inside` whose only verb runs its request's code."""
    (folder / "worker").mkdir(parents=True, exist_ok=True)
    (folder / "worker" / "__init__.py").write_text("")
    (folder / "worker" / "__main__.py").write_text(WORKER)
    return folder


class Cells:
    """Runs code in cells of one image, through the executor: what a verb may do, this may."""

    def __init__(self, engine: Engine, image: str, folder: Path, limits: CellLimits = LIMITS) -> None:
        self.folder = folder
        self.executor = DockerExecutor(engine, folder / "project", folder / "cache", 2, limits=limits)
        self.executor.worker = stage_code(folder / "fake")
        self.executor._images["here"] = image

    def task(self, code: str, timeout_s: float = 60, **options: Any) -> Task:
        name = uuid.uuid4().hex
        return Task(
            environment="here",
            name="code",
            request=made(code=textwrap.dedent(code), **options.pop("request", {})),
            scratch=self.folder / "scratch" / name,
            log=self.folder / "logs" / f"{name}.log",
            timeout_s=timeout_s,
            **options,
        )

    def __call__(self, code: str, timeout_s: float = 60, **options: Any) -> Answer:
        return self.executor.run(self.task(code, timeout_s, **options))

    def result(self, code: str, **options: Any) -> dict[str, Any]:
        """What the code put into `result`."""
        answer = self(code, **options)
        assert answer.result is not None, (answer.ended.how, answer.ended.log)
        return answer.result


@pytest.fixture(scope="session")
def image(engine: Engine, matrix: Matrix, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The id of the real image of 2.5.0, built where it is not there, and proven."""
    environment = planned(matrix, "2.5.0")
    executor = DockerExecutor(
        engine, ROOT, cache_folder(), 2,
        limits=CellLimits(memory_bytes=4 << 30, processes=1024, output_bytes=1 << 30, output_files=65536),
    )  # fmt: skip
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
        command = [sys.executable, "-m", "harness", "bundle", "--arch=90", "--torch=2.5.0", "--level=3"]
        done = subprocess.run(
            [*command, "--part-mb=100", f"--base-image={BASE}", f"--out={folder / 'out'}"],
            cwd=ROOT, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"proven {BUNDLED}: 5 results bit for bit" in done.stdout
        done = subprocess.run(
            ["sh", folder / "out" / "unpack.sh", "--any-gpu", folder / "there"], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def unpacked(place: Path) -> Path:
    return place / "there"


@pytest.fixture(scope="session")
def cells(engine: Engine, image: str, tmp_path_factory: pytest.TempPathFactory) -> Cells:
    return Cells(engine, image, tmp_path_factory.mktemp("cells"))


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
    with variables({"DOCKER_HOST": second.address}):
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
