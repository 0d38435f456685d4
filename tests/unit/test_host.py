from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.config.matrix import parse_matrix
from harness.config.plan import Facts, PlannedEnvironment
from harness.config.planner import plan_run
from harness.errors import InfrastructureError, InputError
from harness.executors import host
from harness.executors.base import stage
from harness.executors.host import PYTHON_VARIABLE, HostExecutor, HostPython, WithHost, candidates, find_host_python
from harness.schema.run_records import Selection
from tests.unit.contexts import FakeExecutor
from tests.unit.test_matrix import SMALL
from tests.unit.test_venv import observation

FOUND = HostPython(path="/usr/bin/python3", version="3.12.3", torch="2.11.0+cu130", user_base="/h/.local", key="k")
WITH_HOST = SMALL.replace("packages:", "  - {torch: host}\npackages:")


@pytest.fixture(autouse=True)
def asked_anew() -> None:
    find_host_python.cache_clear()


def planned(replica: int = 0) -> PlannedEnvironment:
    spec = parse_matrix(WITH_HOST).environments[2].model_copy(update={"replica": replica})
    return PlannedEnvironment(spec=spec, index="")


# -- the matrix and the plan ---------------------------------------------------------------------------------


def test_host_is_one_word_in_the_matrix() -> None:
    matrix = parse_matrix(WITH_HOST)
    spec = matrix.environments[2]
    assert spec.is_host and spec.id() == spec.id("https://x/simple") == "host" and spec.wheel_index == ""
    assert [e.torch for e in matrix.pinned_environments] == ["2.1.0", "2.5.0"]
    assert matrix.with_base("base:1").environments[2] == spec


def test_host_may_be_the_baseline_and_have_a_replica() -> None:
    text = WITH_HOST.replace('baseline: "2.1.0"', "baseline: host").replace(
        "{torch: host}", "{torch: host}\n  - {torch: host, replica: 1}"
    )
    matrix = parse_matrix(text)
    assert matrix.baseline_environment.id() == "host" and matrix.environments[3].id() == "host-r1"


@pytest.mark.parametrize("given", ['cuda: "12.1"', 'python: "3.11"', 'index: "https://x/simple"', "base_image: x"])
def test_what_is_observed_cannot_be_asked_for(given: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_matrix(WITH_HOST.replace("torch: host", f"torch: host, {given}"))
    assert "environments[2]" in caught.value.message and given.partition(":")[0] in caught.value.message
    assert "is observed" in caught.value.message


def test_a_pinned_version_still_needs_its_cuda_and_python() -> None:
    with pytest.raises(InputError, match=r"environments\[1\]: needs python beside torch 2.5.0"):
        parse_matrix(SMALL.replace(', python: "3.11"}\npackages', "}\npackages"))


def test_the_plan_has_its_cells_no_fallback_and_changes_with_what_is_found() -> None:
    matrix = parse_matrix(WITH_HOST)
    facts = [Facts(executor="venv", executor_reason="", interpreters={"host": found}) for found in ("a", "b")]
    plans = [plan_run(matrix, Selection(), fact) for fact in facts]
    assert {cell.environment for cell in plans[0].cells} >= {"host"} and not plans[0].fallbacks
    assert plans[0].digest != plans[1].digest
    only = plan_run(matrix, Selection(mode="eval", torch="host"), facts[0])
    assert only.measured == ("host",)


# -- which interpreter ----------------------------------------------------------------------------------------


def test_the_one_that_is_named_is_the_only_one_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PYTHON_VARIABLE, "/opt/x/bin/python")
    assert candidates() == ["/opt/x/bin/python"]


def test_else_the_harness_s_own_and_then_the_path_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PYTHON_VARIABLE, raising=False)
    for folder in ("nox", "usual"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "python3").write_text("")
        (tmp_path / folder / "python3").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nox" / "python3"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'nox'}:{tmp_path / 'empty'}:{tmp_path / 'usual'}")
    assert candidates() == [str(tmp_path / "nox" / "python3"), str(tmp_path / "usual" / "python3")]


def test_the_first_that_has_torch_and_numpy_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "candidates", lambda: ["bare", "good", "other"])
    monkeypatch.setattr(host, "inspect", lambda path, inside: "bare has no torch" if path == "bare" else FOUND)
    assert find_host_python(tmp_path) is FOUND


def test_where_none_has_it_all_are_named_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "candidates", lambda: ["/a", "/b"])
    monkeypatch.setattr(host, "inspect", lambda path, inside: f"{path} has no torch")
    with pytest.raises(InfrastructureError, match="/a has no torch; /b has no torch") as caught:
        find_host_python(tmp_path)
    assert PYTHON_VARIABLE in caught.value.remedy


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ({"torch": None, "numpy": None}, "has no torch and no numpy"),
        ({"torch": "/t", "numpy": None}, "has no numpy"),
        ("Segmentation fault", "does not run as a Python"),
    ],
)
def test_an_interpreter_that_will_not_do_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: Any, said: str
) -> None:
    text = printed if isinstance(printed, str) else json.dumps(printed)
    done = subprocess.CompletedProcess([], 0, stdout=text, stderr="")
    monkeypatch.setattr(host.subprocess, "run", lambda *arguments, **options: done)
    assert said in str(host.inspect("/p", tmp_path))


@pytest.mark.process
def test_a_real_interpreter_is_asked_without_importing(tmp_path: Path) -> None:
    site = tmp_path / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path)], check=True)
    for name in ("torch", "numpy"):
        (site / name).mkdir()
        (site / name / "__init__.py").write_text("raise SystemExit('imported')")
        (site / f"{name}-9.1.dist-info").mkdir()
        (site / f"{name}-9.1.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: 9.1\n")
        (site / f"{name}-9.1.dist-info" / "RECORD").write_text(f"{name}/__init__.py,sha256=abc,1\n")
    inside = stage(tmp_path / "cache")
    found = host.inspect(str(tmp_path / "bin" / "python"), inside)
    assert isinstance(found, HostPython), found
    assert found.path == str(tmp_path / "bin" / "python") and found.torch == "9.1"
    (site / "torch-9.1.dist-info" / "RECORD").write_text("torch/__init__.py,sha256=edited,1\n")
    again = host.inspect(found.path, inside)
    assert isinstance(again, HostPython) and again.key != found.key


# -- the executor ---------------------------------------------------------------------------------------------


def prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: dict[str, Any]) -> Any:
    monkeypatch.setattr(host, "find_host_python", lambda inside: FOUND)
    for name in ("host_compiler", "cuda_compiler"):
        monkeypatch.setattr(host, name, lambda: None)
    executor = HostExecutor(tmp_path, threads=2)
    executor.run = FakeExecutor(seen).run  # type: ignore[method-assign]
    return executor.prepare(planned(), None)


def test_its_record_has_what_was_observed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = asdict(observation(torch="2.11.0+cu130", torch_cuda="13.0", python="3.12.3", numpy="2.5.2"))
    record = prepare(tmp_path, monkeypatch, seen)
    assert (record.status, record.id, record.executor) == ("ok", "host", "host")
    assert (record.torch, record.cuda, record.python) == ("2.11.0", "13.0", "3.12")
    assert record.pins == {} and record.pins_sha256 == "" and not record.image


@pytest.mark.parametrize("name", ["torch", "numpy"])
def test_without_what_it_needs_it_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    seen = asdict(observation(**{name: ""}, settings={name: "cannot be imported: libcudart.so.13"}))
    record = prepare(tmp_path, monkeypatch, seen)
    assert record.status == "broken" and f"{name} cannot be imported: libcudart" in record.message
    assert PYTHON_VARIABLE in record.message


def test_a_machine_without_one_is_a_broken_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "candidates", list)
    record = HostExecutor(tmp_path, threads=2).prepare(planned(), None)
    assert record.status == "broken" and "no python3 on the PATH" in record.message and record.torch == "host"


def test_each_environment_is_asked_of_its_own_executor() -> None:
    stopped: list[str] = []

    def named(name: str) -> Any:
        return SimpleNamespace(
            name=name, holds_back=name == "host", run=lambda task: name, stop=lambda: stopped.append(name)
        )

    both: Any = WithHost(named("docker"), named("host"), ["host", "host-r1"])
    answers = [both.run(SimpleNamespace(environment=id)) for id in ("torch2.5.0-cu121-py311", "host", "host-r1")]
    assert answers == ["docker", "host", "host"] and both.name == "docker"
    assert not both.holds_back, "what the pinned executor cannot, the whole cannot"
    both.stop()
    assert stopped == ["docker", "host"]
