from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from harness.config.matrix import Limits
from harness.errors import InfrastructureError
from harness.isolate import choose as choosing
from harness.isolate.choose import choose_here, lacking, sandbox_limits
from harness.isolate.docker.connection import EngineGone
from harness.isolate.docker.engine import EngineFacts

ENGINE = EngineFacts(
    endpoint="unix:///var/run/docker.sock", version="27.1", machine="m", local=True, architecture="x86_64",
    system="Debian", kernel="6.1", processors=8, memory_bytes=16 << 30, seccomp=True, gpus="",
)  # fmt: skip


def pick(
    monkeypatch: pytest.MonkeyPatch, wanted: Any = "auto", gpus: int = 0, problem: Any = lambda base: "", **facts: Any
) -> tuple[str, str]:
    """(the executor, the reason) beside an engine with these facts, and with what is wrong with its base."""
    engine = SimpleNamespace(facts=lambda: replace(ENGINE, **facts))
    monkeypatch.setattr(choosing, "Engine", lambda: engine)
    monkeypatch.setattr(choosing, "base_problem", lambda engine, base: problem(base))
    choice = choose_here(wanted, ["base:1"], gpus)
    assert bool(choice.remedy) is (choice.executor == "venv" and wanted == "auto"), "what would give containers"
    return choice.executor, choice.reason


def test_auto_takes_containers_where_all_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pick(monkeypatch) == ("docker", "containers of Docker 27.1")
    there = pick(monkeypatch, local=False, endpoint="tcp://there")
    assert there == ("docker", "containers of Docker 27.1 at tcp://there")


def fails(error: Exception) -> Callable[..., str]:
    def fail(*_: Any) -> str:
        raise error

    return fail


LACKS: dict[str, tuple[dict[str, Any], str]] = {
    "architecture": ({"architecture": "aarch64"}, "aarch64"),
    "seccomp": ({"seccomp": False}, "seccomp"),
    "base": ({"problem": lambda base: "no such thing"}, "the base image base:1 is not there"),
    "engine": ({"problem": fails(EngineGone("connection refused"))}, "no container engine answers: connection refused"),
    "context": (
        {"problem": fails(InfrastructureError("no context 'x'", "y"))}, "no container engine answers: no context 'x'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LACKS)
def test_for_want_of_anything_auto_takes_virtual_environments_and_containers_are_an_error(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    changes, said = LACKS[name]
    executor, reason = pick(monkeypatch, **changes)
    assert executor == "venv" and reason.startswith("virtual environments, since ") and said in reason
    with pytest.raises(InfrastructureError) as caught:
        pick(monkeypatch, "docker", **changes)
    assert said in caught.value.message and caught.value.remedy and caught.value.code == 30


def test_auto_never_makes_a_gpu_vanish(monkeypatch: pytest.MonkeyPatch) -> None:
    executor, reason = pick(monkeypatch, gpus=1)
    assert executor == "venv" and "GPU" in reason and "toolkit" in reason
    assert pick(monkeypatch, "docker", gpus=1)[0] == "docker"
    for how in ("nvidia", "cdi"):
        assert lacking(replace(ENGINE, gpus=how), gpus=1, missing_bases=()) == ("", "")


def test_virtual_environments_that_were_asked_for_ask_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    never = fails(AssertionError("asked a registry"))
    assert pick(monkeypatch, "venv", problem=never) == ("venv", "virtual environments, as asked for")
    assert pick(monkeypatch, problem=never, seccomp=False)[0] == "venv"


def test_a_cell_gets_what_the_matrix_says_or_a_share() -> None:
    default = sandbox_limits(Limits(), ENGINE)
    assert default.memory_bytes == int(0.45 * (16 << 30)) and default.processes == 1024
    assert default.output_bytes == default.memory_bytes, "its folder is in that memory"
    asked = sandbox_limits(Limits(memory_gib=1.5, processes=64, output_gib=8), ENGINE)
    assert asked.memory_bytes == int(1.5 * (1 << 30)) == asked.output_bytes and asked.processes == 64
