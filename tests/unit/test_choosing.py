from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.config.matrix import Limits
from harness.errors import InfrastructureError
from harness.isolate import choose as choosing
from harness.isolate.choose import choose, choose_here, sandbox_limits
from harness.isolate.docker.connection import EngineGone
from harness.isolate.docker.engine import EngineFacts

ENGINE = EngineFacts(
    endpoint="unix:///var/run/docker.sock", version="27.1", machine="m", local=True, architecture="x86_64",
    system="Debian", kernel="6.1", processors=8, memory_bytes=16 << 30, seccomp=True, gpus="",
)  # fmt: skip


def pick(wanted: Any = "auto", engine: EngineFacts | None = ENGINE, **changes: Any) -> tuple[str, str]:
    options: dict[str, Any] = {"engine_problem": "nobody is there", "gpus": 0, "missing_bases": dict, **changes}
    choice = choose(wanted, engine=engine, **options)
    assert bool(choice.remedy) is (choice.executor == "venv" and wanted == "auto"), "what would give containers"
    return choice.executor, choice.reason


def test_auto_takes_containers_where_all_is_there() -> None:
    assert pick() == ("docker", "containers of Docker 27.1")
    assert pick(engine=replace(ENGINE, local=False, endpoint="tcp://there"))[1] == (
        "containers of Docker 27.1 at tcp://there"
    )


LACKS: dict[str, tuple[dict[str, Any], str]] = {
    "engine": ({"engine": None}, "no container engine answers: nobody is there"),
    "architecture": ({"engine": replace(ENGINE, architecture="aarch64")}, "aarch64"),
    "seccomp": ({"engine": replace(ENGINE, seccomp=False)}, "seccomp"),
    "base": ({"missing_bases": lambda: {"base:1": "no such thing"}}, "the base image base:1 is not there"),
}


@pytest.mark.parametrize("name", LACKS)
def test_auto_takes_virtual_environments_for_want_of_anything_and_says_of_what(name: str) -> None:
    changes, said = LACKS[name]
    executor, reason = pick(**changes)
    assert executor == "venv" and reason.startswith("virtual environments, since ") and said in reason


@pytest.mark.parametrize("name", LACKS)
def test_containers_that_were_asked_for_and_cannot_be_had_are_an_error(name: str) -> None:
    changes, said = LACKS[name]
    with pytest.raises(InfrastructureError) as caught:
        pick("docker", **changes)
    assert said in caught.value.message and caught.value.remedy and caught.value.code == 30


def test_auto_never_makes_a_gpu_vanish() -> None:
    executor, reason = pick(gpus=1)
    assert executor == "venv" and "GPU" in reason and "toolkit" in reason
    assert pick(gpus=1, engine=replace(ENGINE, gpus="nvidia"))[0] == "docker"
    assert pick(gpus=1, engine=replace(ENGINE, gpus="cdi"))[0] == "docker"


def test_virtual_environments_that_were_asked_for_ask_nobody() -> None:
    def never() -> dict[str, str]:
        raise AssertionError("asked a registry")

    assert pick("venv", missing_bases=never) == ("venv", "virtual environments, as asked for")
    assert pick(engine=None, missing_bases=never)[0] == "venv"


@pytest.mark.parametrize("error", [EngineGone("connection refused"), InfrastructureError("no context 'x'", "y")])
def test_an_engine_that_cannot_be_reached_is_the_reason(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse() -> None:
        raise error

    monkeypatch.setattr(choosing, "Engine", refuse)
    choice = choose_here("auto", ["base:1"], 0)
    said = "connection refused" if isinstance(error, EngineGone) else "no context 'x'"
    assert choice.executor == "venv" and choice.reason.endswith(f"no container engine answers: {said}")
    with pytest.raises(InfrastructureError, match=said):
        choose_here("docker", ["base:1"], 0)


def test_a_cell_gets_what_the_matrix_says_or_a_share() -> None:
    default = sandbox_limits(Limits(), ENGINE)
    assert default.memory_bytes == int(0.45 * (16 << 30)) and default.processes == 1024
    assert default.output_bytes == default.memory_bytes, "its folder is in that memory"
    asked = sandbox_limits(Limits(memory_gib=1.5, processes=64, output_gib=8), ENGINE)
    assert asked.memory_bytes == int(1.5 * (1 << 30)) == asked.output_bytes and asked.processes == 64
