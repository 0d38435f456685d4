"""What an environment holds besides torch follows the version of PyTorch, unless the user pins it."""

from __future__ import annotations

import functools
import http.server
import platform
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.config import pins
from harness.config.environments import Environment
from harness.config.matrix import Matrix, load_matrix, parse_matrix
from harness.config.pins import ensure_pins, load_pins
from harness.config.plan import PlannedEnvironment
from harness.config.requirements import exceeded_limits, preferred_pins, unmet_requirement, usual_requirements
from harness.errors import InfrastructureError, InputError
from harness.preflight import environments
from harness.preflight.environments import check_interpreters, check_packages
from harness.trace.runs import make_matrix
from tests.unit.test_wheel_files import Silent
from tests.wheels import write_wheel

KERNELS = "kernels: [{name: k, sources: {cpu: [k.cpp]}}]\n"


def matrix_of(*torches: str, more: str = "") -> tuple[Matrix, str]:
    each = "".join(f'  - {{torch: "{torch}", cuda: "12.1", python: "3.10"}}\n' for torch in torches)
    text = f"environments:\n{each}{more}{KERNELS}"
    return parse_matrix(text), text


@pytest.mark.parametrize(
    ("torch", "wanted"),
    [
        ("2.1.0", ["numpy<2", "ninja", "setuptools<70"]),
        ("2.1.2", ["numpy<2", "ninja", "setuptools<70"]),
        ("2.2.2", ["numpy<2", "ninja", "setuptools"]),
        ("2.3.0", ["numpy", "ninja", "setuptools"]),
        ("2.3.0.dev20240301", ["numpy", "ninja", "setuptools"]),
        ("2.15.0", ["numpy", "ninja", "setuptools"]),
    ],
)
def test_ranges_follow_the_version(torch: str, wanted: list[str]) -> None:
    assert usual_requirements(torch, []) == wanted
    assert usual_requirements(torch, ["numpy"]) == wanted[1:]


def test_a_pin_of_the_user_is_asked_for_as_it_is() -> None:
    matrix, _ = matrix_of("2.1.0", "2.13.0", more="packages: [numpy==2.0.2, einops==0.8.0]\n")
    for spec, setuptools in zip(matrix.environments, ("setuptools<70", "setuptools"), strict=True):
        assert matrix.requirements_in(spec) == ["numpy==2.0.2", "einops==0.8.0", "ninja", setuptools]
        assert matrix.packages_in(spec) == ["numpy==2.0.2", "einops==0.8.0"]


def test_the_same_versions_are_preferred_wherever_a_python_has_them() -> None:
    assert preferred_pins("3.11") == preferred_pins("3.12") == "numpy==1.26.4\nninja==1.11.1.1\nsetuptools==69.5.1\n"
    assert "numpy==1.24.4" in preferred_pins("3.8") and "numpy==2.2.6" in preferred_pins("3.13")


def test_pins_are_compared_with_ranges() -> None:
    held = {"torch": "2.1.0+cu121", "numpy": "2.0.2", "setuptools": "69.5.1", "odd": "of-today"}
    assert unmet_requirement(["torch==2.1.0", "setuptools<70"], held) == ""
    assert unmet_requirement(["torch==2.1.0", "numpy<2"], held) == "numpy<2"
    assert unmet_requirement(["ninja"], held) == "ninja" and unmet_requirement(["odd"], held) == "odd"
    assert exceeded_limits("2.1.0", {"numpy": "2.0.2"}) == [("numpy==2.0.2", "numpy<2")]
    assert exceeded_limits("2.5.0", {"numpy": "2.0.2"}) == exceeded_limits("2.1.0", {"numpy": "1.26.4"}) == []


def test_a_pin_that_is_no_version_is_refused() -> None:
    with pytest.raises(InputError, match="numpy==new: not a version"):
        matrix_of("2.5.0", more="packages: [numpy==new]\n")


def test_a_side_of_a_trace_has_the_packages_that_the_matrix_gives_its_version(tmp_path: Path) -> None:
    path = tmp_path / "matrix.yaml"
    own = '  - {torch: "2.13.0", cuda: "13.0", python: "3.12", packages: [setuptools==80.9.0]}\n'
    path.write_text(matrix_of("2.5.0", more=f"{own}packages: [setuptools==69.5.1]\n")[1])
    good, bad = make_matrix(path, ("2.5.0", "2.13.0"), []).environments
    matrix, _ = load_matrix(path)
    assert "setuptools==69.5.1" in matrix.requirements_in(good)
    assert "setuptools==80.9.0" in matrix.requirements_in(bad)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package index of empty wheels: two versions of each package, and two of torch, the later of which asks for a
    newer setuptools."""
    asks = {"2.12.0": "setuptools<82", "2.13.0": "setuptools>=77.0.3"}
    for version, requirement in asks.items():
        tag = "cp311-cp311-linux_" + platform.machine()
        write_wheel(tmp_path / "index" / "torch", "torch", version, {}, tag, [requirement])
    for name, version in (
        ("setuptools", "69.5.1"),
        ("setuptools", "80.9.0"),
        ("numpy", "1.26.4"),
        ("numpy", "2.4.0"),
        ("ninja", "1.11.1.1"),
        ("ninja", "1.13.0"),
    ):
        write_wheel(tmp_path / "index" / name, name, version, {})
    handler = functools.partial(Silent, directory=tmp_path / "index")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setattr(pins, "PYPI", address)
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield address
        server.shutdown()


def planned(torch: str, index: str, **more: Any) -> PlannedEnvironment:
    return PlannedEnvironment(spec=Environment(torch=torch, cuda="12.1", python="3.11", **more), index=index)


@pytest.mark.process
@pytest.mark.parametrize(("torch", "setuptools"), [("2.12.0", "69.5.1"), ("2.13.0", "80.9.0")])
def test_the_usual_versions_are_left_only_where_pytorch_asks_for_others(
    index: str, tmp_path: Path, torch: str, setuptools: str
) -> None:
    matrix = parse_matrix(KERNELS)
    path, _ = ensure_pins(tmp_path, planned(torch, index), matrix)
    wanted = {"torch": torch, "numpy": "1.26.4", "ninja": "1.11.1.1", "setuptools": setuptools}
    assert load_pins(path) == wanted
    numpy, _ = ensure_pins(tmp_path, planned(torch, index, packages=["numpy==2.4.0"]), matrix)
    assert load_pins(numpy) == wanted | {"numpy": "2.4.0"}


@pytest.mark.process
def test_a_pin_of_the_user_wins_or_is_named_with_what_refuses_it(index: str, tmp_path: Path) -> None:
    pinned = parse_matrix(f"packages: [setuptools==69.5.1]\n{KERNELS}")
    with pytest.raises(InputError) as caught:
        ensure_pins(tmp_path, planned("2.13.0", index), pinned)
    said = " ".join(caught.value.message.split())
    assert "setuptools>=77.0.3" in said and "setuptools==69.5.1" in said
    # The remedy: packages of the environment come before what PyTorch asks for.
    own = planned("2.13.0", index, packages=["setuptools==80.9.0"])
    assert load_pins(ensure_pins(tmp_path, own, pinned)[0])["setuptools"] == "80.9.0"


def test_check_names_a_python_that_is_not_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, _ = matrix_of("2.1.0", "2.5.0")
    for there, unchecked in (
        ("3.10", []),
        (None, ["Python 3.10: not on this machine; a run can only start if uv can fetch it"]),
    ):
        monkeypatch.setattr(environments, "find_interpreter", lambda python, there=there: there)
        assert check_interpreters(matrix.environments).unchecked == unchecked


def test_check_finds_what_a_run_would_refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(root: Path, environment: Environment, matrix: Matrix) -> str:
        if environment.id.startswith("torch2.13.0"):
            raise InputError("setuptools==69.5.1 is pinned, and PyTorch 2.13.0 needs setuptools>=77.0.3", "remove it")
        if environment.id.startswith("torch2.4.0"):
            raise InfrastructureError("no answer")
        return ""

    def indexes(matrix: Matrix, strict: bool) -> tuple[dict[str, str], dict[str, str]]:
        return {spec.id(): spec.wheel_index for spec in matrix.environments}, {}

    monkeypatch.setattr(environments, "resolve_as_planned", resolve)
    monkeypatch.setattr(environments, "choose_indexes", indexes)
    matrix, text = matrix_of("2.1.0", "2.13.0", "2.4.0", more="packages: [numpy==2.0.2]\n")
    found = check_packages(matrix, text, tmp_path / "matrix.yaml", matrix.environments)
    (problem,) = found.problems
    assert problem.where.endswith("matrix.yaml:3") and "needs setuptools>=77.0.3" in problem.what
    assert found.passed == ["packages of torch2.1.0-cu121-py310: they can be resolved"]
    assert found.unchecked == [
        "packages of torch2.1.0-cu121-py310: numpy==2.0.2 is pinned, and PyTorch 2.1.0 works only with numpy<2: a "
        "failure there for this reason says nothing about PyTorch",
        "packages: no answer",
    ]
    assert not (tmp_path / "docker").exists()
