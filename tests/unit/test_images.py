from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from harness.cli.images import _remove
from harness.config.environments import PYPI, Environment
from harness.config.plan import PlannedEnvironment
from harness.errors import InfrastructureError
from harness.executors import images
from harness.executors.engine import Image
from harness.executors.images import (
    KEY,
    Wanted,
    base_identity,
    base_problem,
    build_context,
    build_image,
    explain,
    image_key,
)

DIGEST = "a" * 64
BASE = f"nvidia/cuda@sha256:{DIGEST}"
HASH = "--hash=sha256:" + "0" * 64


def planned(**changes: Any) -> PlannedEnvironment:
    spec = Environment(**{"torch": "2.5.0", "cuda": "12.1", "python": "3.11", "base_image": BASE, **changes})
    return PlannedEnvironment(spec=spec, index=PYPI)


def image(name: str, **labels: str) -> Image:
    return Image(id=f"sha256:{name}", tags=(name,), labels=labels, layers=(name,), size_bytes=1, created="")


class FakeEngine:
    """Images by name, and what was asked of it."""

    def __init__(self, *known: Image) -> None:
        self.environment: dict[str, str] = {}
        self.known = {item.tags[0]: item for item in known}
        self.pulled: list[str] = []
        self.removed: list[str] = []

    def image(self, name: str) -> Image | None:
        return self.known.get(name)

    def images(self) -> list[Image]:
        return list(self.known.values())

    def registry_problem(self, name: str) -> str:
        return "denied"

    def pull(self, name: str) -> None:
        self.pulled.append(name)
        self.known[name] = image(name)

    def remove_image(self, name: str) -> None:
        self.removed.append(name)


class Builder:
    """Stands in for `docker build`: it prints, fails, or gives the engine an image."""

    def __init__(self, engine: FakeEngine) -> None:
        self.engine, self.built, self.code = engine, list[str](), 0

    def run(self, _environment: Any, _context: Any, tag: str, _arguments: Any, labels: Any, log: Path) -> int:
        self.built.append(tag)
        log.write_text("Step 1/2 : FROM x\nit did not work\n")
        if not self.code:
            self.engine.known[tag] = image(tag, **labels)
        return self.code


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> Builder:
    found = Builder(FakeEngine())
    monkeypatch.setattr(images, "run_build", found.run)
    return found


@pytest.fixture
def pins(tmp_path: Path) -> Path:
    path = tmp_path / "pins.txt"
    path.write_text(f"torch==2.5.0 {HASH}\n")
    return path


@pytest.fixture(autouse=True)
def no_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "output_of", lambda command: "uv 1" if command[-1] == "--version" else None)


def test_the_key_knows_pins_index_python_base_and_recipe(
    pins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other.txt"
    other.write_text(pins.read_text() + "# changed\n")
    keys = [
        image_key(planned(), pins, DIGEST),
        image_key(planned(), other, DIGEST),
        image_key(planned(python="3.10"), pins, DIGEST),
        image_key(planned(replica=1), pins, DIGEST),
        image_key(planned(), pins, "b" * 64),
        image_key(PlannedEnvironment(spec=planned().spec, index="https://mirror"), pins, DIGEST),
    ]
    assert keys[0] == image_key(planned(), pins, DIGEST)
    monkeypatch.setattr(images, "output_of", lambda command: "uv 2")
    keys.append(image_key(planned(), pins, DIGEST))
    assert len(set(keys)) == len(keys)


def test_a_base_is_known_by_its_digest_or_by_its_layers() -> None:
    engine = FakeEngine(image("base:1"))
    assert base_identity(engine, BASE) == DIGEST and not engine.pulled  # type: ignore[arg-type]
    first = base_identity(engine, "base:1")  # type: ignore[arg-type]
    assert len(first) == 64 and not engine.pulled
    assert base_identity(engine, "base:2") != first and engine.pulled == ["base:2"]  # type: ignore[arg-type]
    assert base_problem(engine, "base:1") == "" and base_problem(engine, "base:3") == "denied"  # type: ignore[arg-type]


def test_an_image_is_built_once(builder: Builder, pins: Path, tmp_path: Path) -> None:
    engine: Any = builder.engine
    first, reused = build_image(engine, planned(), pins, cache=tmp_path, base=DIGEST)
    assert not reused and first.labels[KEY] == image_key(planned(), pins, DIGEST)
    assert build_image(engine, planned(), pins, cache=tmp_path, base=DIGEST) == (first, True)
    assert len(builder.built) == 1
    engine.known[first.tags[0]] = image(first.tags[0], **{KEY: "edited"})
    _, reused = build_image(engine, planned(), pins, cache=tmp_path, base=DIGEST)
    assert not reused and len(builder.built) == 2


def test_a_build_that_fails_leaves_its_log(builder: Builder, pins: Path, tmp_path: Path) -> None:
    builder.code = 1
    with pytest.raises(InfrastructureError, match="it did not work"):
        build_image(builder.engine, planned(), pins, cache=tmp_path, base=DIGEST)  # type: ignore[arg-type]
    assert "FROM x" in next((tmp_path / "images").glob("*.log")).read_text()


def test_the_context_is_the_recipe_the_pins_and_uv_and_nothing_of_the_project(
    pins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uv, certificates = tmp_path / "uv", tmp_path / "site.pem"
    uv.write_bytes(b"uv")
    certificates.write_text("of the site")
    monkeypatch.setattr(images, "uv_command", lambda: [str(uv)])
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    for given in (True, False):
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates) if given else "")
        target = io.BytesIO()
        build_context(target, pins)
        with tarfile.open(fileobj=target) as tar:
            names = {member.name: member.mode & 0o111 for member in tar}
            held = tar.extractfile("certificates.pem")
            assert held is not None and held.read() == (b"of the site" if given else b"")
        assert set(names) == {"Dockerfile", "install.sh", "uv", "certificates.pem", "pins.txt", "wheels", "wheels/none"}
        assert names["install.sh"] and names["uv"] and not names["pins.txt"]


PRINTED = {
    "pull access denied for nvidia/cuda, repository does not exist": "the base image base:1 is not there",
    (
        'Get "https://registry-1.docker.io/v2/": dial tcp: lookup registry-1.docker.io: no such host'
    ): "the base image base:1 is not there",
    "error: Hash mismatch for `numpy==1.26.4`": "a wheel is not the file that was pinned: error: Hash mismatch",
    "write /opt/x: no space left on device": "disk is full",
    "error: error sending request for url (https://pypi.org/simple/torch/)": "the package index cannot be reached",
    "something else": "building it failed",
}


@pytest.mark.parametrize("line", PRINTED)
def test_what_a_builder_printed_is_explained(tmp_path: Path, line: str) -> None:
    log = tmp_path / "log"
    log.write_text(
        f"Step 9/9 : RUN install\n---> Running in 0123\n\x1b[91m{line}\nRemoving intermediate container 01\n"
    )
    error = explain("tag:1", "base:1", log, 1)
    assert error.message.startswith("tag:1: ") and PRINTED[line] in error.message and error.remedy and error.code == 30
    assert line in error.message and "/bin/sh -c" not in error.message
    log.write_text("Step 1/1 : FROM x\n")
    last = explain("tag:1", "base:1", log, 7)
    assert "exited with 7" in last.message and str(log) in last.remedy


def test_removing_keeps_what_the_matrix_uses_and_bases_unless_told(capsys: pytest.CaptureFixture[str]) -> None:
    used, old, base = image("used:1", **{"org.kernel-matrix": "environment"}), image("old:1"), image("base:1")
    base = image("base:1", **{"org.kernel-matrix": "base"})
    wanted = [Wanted(environment=planned(), tag="used:1")]
    engine: Any = FakeEngine(base, used, old)
    _remove(engine, wanted, every=False)
    assert engine.removed == ["old:1"] and "removed old:1" in capsys.readouterr().out
    engine = FakeEngine(base, used)
    _remove(engine, wanted, every=False)
    assert not engine.removed and "--all" in capsys.readouterr().out
    _remove(engine, wanted, every=True)
    assert engine.removed == ["used:1", "base:1"], "what is built on a base goes first"
