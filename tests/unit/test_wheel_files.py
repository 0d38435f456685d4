"""PyTorch's nightlies, release candidates and wheel files: what matrix.yaml says of them, and their pins.

A small package index of stand-in wheels is served on this machine; uv resolves from it.
"""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from harness.config import matrix as config_matrix
from harness.config import pins
from harness.config.environments import Environment
from harness.config.listing import fetch_listing
from harness.config.matrix import Matrix, load_matrix, matrix_text, parse_matrix
from harness.config.missing import unfit_wheels
from harness.config.pins import ensure_pins, load_pins, pins_path, resolve_pins, wheel_of
from harness.config.plan import PlannedEnvironment
from harness.config.wheel_files import supported_tags
from harness.errors import InputError
from harness.executors.venv import VenvExecutor
from harness.search.bisect.releases import releases_between
from tests.wheels import write_wheel

NIGHTLY = {"torch": "2.9.0.dev20250801", "cuda": "12.6", "python": "3.11"}
FILE = "torch-2.9.0a0+git1234567-cp311-cp311-linux_x86_64.whl"


def stand_in(folder: Path, version: str, python: str = "cp311", platform: str = "linux_x86_64", git: str = "") -> Path:
    """A wheel of torch that holds nothing but its names."""
    files = {"torch/__init__.py": "", "torch/version.py": f"git_version = {git!r}\n"}
    return write_wheel(folder, "torch", version, files, f"{python}-{python}-{platform}")


class Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package index: nightlies of some days, some of them for others, and a candidate. PyPI has nothing here."""
    folder = tmp_path / "index" / "own" / "torch"
    for version in ("2.9.0.dev20250701", "2.9.0.dev20250703", "2.9.0.dev20250801+cu126", "2.9.0rc3", "2.8.0"):
        stand_in(folder, version)
    stand_in(folder, "2.9.0.dev20250710", python="cp310")
    stand_in(folder, "2.9.0.dev20250711", platform="manylinux2014_aarch64")
    (tmp_path / "index" / "pypi").mkdir()
    handler = functools.partial(Silent, directory=tmp_path / "index")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setattr(pins, "PYPI", f"{address}/pypi")
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield f"{address}/own"
        server.shutdown()


def planned(**values: Any) -> PlannedEnvironment:
    spec = Environment(**values)
    return PlannedEnvironment(spec=spec, index=spec.wheel_index)


def matrix_of(folder: Path, environment: str) -> tuple[Matrix, str]:
    path = folder / "matrix.yaml"
    path.write_text(f"environments:\n  - {environment}\nkernels:\n  - {{name: mine, sources: {{cpu: [mine.cpp]}}}}\n")
    return load_matrix(path)


@pytest.mark.parametrize(
    ("torch", "index"),
    [("2.9.0.dev20250801", "nightly/cu126"), ("2.9.0rc3", "test/cu126"), ("2.9.0", "cu126")],
)
def test_each_kind_of_version_has_its_index_and_only_releases_fall_back_to_pypi(torch: str, index: str) -> None:
    spec = Environment(torch=torch, cuda="12.6", python="3.11")
    assert spec.wheel_index == f"https://download.pytorch.org/whl/{index}"
    assert (spec.fallback_index is None) == (torch != "2.9.0") and spec.id() == f"torch{torch}-cu126-py311"
    assert (
        Environment(torch=torch, cuda="12.6", python="3.11", index="https://own/whl").wheel_index == "https://own/whl"
    )


def test_the_name_of_a_wheel_says_what_it_is() -> None:
    spec = Environment(wheel=f"dist/{FILE}")  # type: ignore[call-arg]
    assert (spec.torch, spec.python, spec.cuda) == ("2.9.0a0", "3.11", "")
    assert spec.id() == "torch2.9.0a0-wheel-git1234567-py311" and spec.wheel_index == "https://pypi.org/simple"
    built = Environment(wheel="torch-2.5.0+cu121-cp311-cp311-linux_x86_64.whl")  # type: ignore[call-arg]
    assert built.cuda == "12.1" and built.id() != Environment(torch="2.5.0", cuda="12.1", python="3.11").id()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"wheel": "torch-2.9.0-cp310-cp310-linux_x86_64.whl", "python": "3.11"}, "python: '3.11' is asked for"),
        ({"wheel": FILE, "torch": "2.8.0"}, "torch: '2.8.0' is asked for"),
        ({"wheel": "numpy-1.26.4-cp311-cp311-linux_x86_64.whl"}, "a wheel of numpy, and not of torch"),
        ({"wheel": "nightly.whl"}, "not named as a wheel is"),
        ({"wheel": f"../{FILE}"}, "must be a path inside the folder of matrix.yaml"),
        ({"wheel": FILE, "torch": "host"}, "torch: 'host' is asked for"),
        ({"torch": "2.9.0.dev", "cuda": "12.6", "python": "3.11"}, "should match pattern"),
    ],
)
def test_what_contradicts_itself_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Environment(**values)


def test_such_environments_can_be_written_and_read(tmp_path: Path) -> None:
    for text in (f"{{wheel: dist/{FILE}}}", '{torch: "2.9.0rc3", cuda: "12.6", python: "3.11"}'):
        matrix, _ = matrix_of(tmp_path, text)
        assert parse_matrix(matrix_text(matrix)) == matrix


def test_a_wheel_file_that_is_not_there_or_for_another_machine_is_found_before_a_run(tmp_path: Path) -> None:
    for name, said in (
        ("torch-2.9.0-cp311-cp311-linux_x86_64.whl", "no such file"),
        (stand_in(tmp_path, "2.9.1", platform="manylinux2014_aarch64").name, "for manylinux2014_aarch64, and here is"),
    ):
        matrix, text = matrix_of(tmp_path, f"{{wheel: {name}}}")
        [problem] = unfit_wheels(matrix, text, tmp_path / "matrix.yaml", matrix.environments)
        assert said in problem.what and problem.where.endswith("matrix.yaml:2")
        spec = matrix.environments[0]
        with pytest.raises(InputError, match=said):
            ensure_pins(tmp_path, PlannedEnvironment(spec=spec, index=spec.wheel_index), matrix)


@pytest.mark.process
def test_nightlies_and_candidates_are_pinned_from_the_index_that_has_them(index: str, tmp_path: Path) -> None:
    for torch, pin in (("2.9.0.dev20250801", "2.9.0.dev20250801+cu126"), ("2.9.0rc3", "2.9.0rc3")):
        text = resolve_pins(planned(torch=torch, cuda="12.6", python="3.11", index=index), [])
        (tmp_path / "pins.txt").write_text(text)
        assert load_pins(tmp_path / "pins.txt") == {"torch": pin}


@pytest.mark.process
@pytest.mark.parametrize(
    ("torch", "said", "remedy"),
    [
        ("2.9.0.dev20250601", "no version of torch", "keeps nightlies from 2.9.0.dev20250701 to 2.9.0.dev20250801"),
        ("2.9.0rc1", "no version of torch", "keeps candidates from 2.9.0rc3 to 2.9.0rc3"),
        ("2.9.0.dev20250710", "matching Python ABI tag", "correct `torch`, `python`"),
        ("2.9.0.dev20250711", "only for .*manylinux2014_aarch64|manylinux2014_aarch64", "correct `torch`"),
    ],
)
def test_what_the_index_does_not_have_is_said_with_what_it_has(index: str, torch: str, said: str, remedy: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        resolve_pins(planned(torch=torch, cuda="12.6", python="3.11", index=index), [])
    assert remedy in caught.value.remedy


@pytest.mark.process
def test_a_wheel_file_is_pinned_by_its_bytes_and_installed_from_where_it_lies(
    index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = stand_in(tmp_path / "dist", "2.9.0a0+git1234567")
    matrix, _ = matrix_of(tmp_path, f"{{wheel: dist/{file.name}}}")
    monkeypatch.setattr(config_matrix, "usual_requirements", lambda torch, pinned: [])  # the index has torch only
    spec = matrix.environments[0]
    environment = PlannedEnvironment(spec=spec, index=pins.PYPI)
    path, written = ensure_pins(tmp_path, environment, matrix)
    assert written and path == pins_path(tmp_path, environment)
    assert load_pins(path) == {"torch": "2.9.0a0+git1234567"} and path.read_text().count("--hash=") == 1
    assert ensure_pins(tmp_path, environment, matrix) == (path, False) and wheel_of(path, environment) == file
    assert str(tmp_path) not in path.read_text()

    folder = tmp_path / "made"
    VenvExecutor(tmp_path / "cache", threads=1)._install(environment, path, folder)
    [there] = folder.glob("venv/lib/python*/site-packages/torch-*.dist-info")
    assert there.name == "torch-2.9.0a0+git1234567.dist-info"

    stand_in(tmp_path / "dist", "2.9.0a0+git1234567", git="another")
    with pytest.raises(InputError, match="changed since it was pinned") as caught:
        ensure_pins(tmp_path, environment, matrix)
    assert "pin this one: kernel-matrix pins" in caught.value.remedy
    assert ensure_pins(tmp_path, environment, matrix, again=True) == (path, True)
    file.unlink()
    with pytest.raises(InputError, match="no such file"):
        ensure_pins(tmp_path, environment, matrix)


def test_two_files_of_one_version_have_pins_of_their_own(tmp_path: Path) -> None:
    one, two = (planned(wheel=f"{place}/{FILE}", replica=n) for n, place in enumerate(("before", "after")))
    assert pins_path(tmp_path, one) != pins_path(tmp_path, two)


@pytest.mark.process
def test_a_bisection_by_date_asks_the_days_that_have_a_wheel(index: str) -> None:
    spec, files = Environment(**NIGHTLY, index=index), fetch_listing(index)
    found = releases_between(files, "2.9.0.dev20250701", "2.9.0.dev20250801", spec, index, supported_tags("3.11"))
    assert {release.version: bool(release.skipped) for release in found} == {
        "2.9.0.dev20250701": False,
        "2.9.0.dev20250703": False,
        "2.9.0.dev20250710": True,
        "2.9.0.dev20250711": True,
        "2.9.0.dev20250801": False,
    }
    with pytest.raises(InputError, match="not a nightly") as caught:
        releases_between(files, "2.9.0.dev20250601", "2.9.0.dev20250801", spec, index, supported_tags("3.11"))
    assert "it keeps nightlies from 2.9.0.dev20250701 to 2.9.0.dev20250801" in caught.value.remedy


def test_versions_of_two_indexes_are_not_bisected() -> None:
    with pytest.raises(InputError, match="indexes of their own"):
        releases_between([], "2.8.0", "2.9.0.dev20250801", Environment(**NIGHTLY), "https://x", frozenset())
