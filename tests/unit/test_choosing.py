from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.config.environments import PYPI
from harness.config.matrix import Limits, parse_matrix
from harness.errors import InfrastructureError, InputError
from harness.executors import choose as choosing
from harness.executors.archive import choose_bundled_index, load_bundle, write_manifest
from harness.executors.bwrap import Bwrap
from harness.executors.choose import choose_bundle, choose_here, lacking, sandbox_limits, wanted_bundle
from harness.executors.engine import EngineFacts, EngineGone
from harness.run.machine import bundled_indexes
from tests.unit.test_archive import ID, entry
from tests.unit.test_host import WITH_HOST

BWRAP = Bwrap(program="bwrap", rootless=False)
ENGINE = EngineFacts(
    endpoint="unix:///var/run/docker.sock",
    version="27.1",
    machine="m",
    local=True,
    architecture="x86_64",
    system="Debian",
    kernel="6.1",
    processors=8,
    memory_bytes=16 << 30,
    seccomp=True,
    gpus="",
)


def pick(
    monkeypatch: pytest.MonkeyPatch, wanted: Any = "auto", gpus: int = 0, problem: Any = lambda base: "", **facts: Any
) -> tuple[str, str]:
    """(the executor, the reason) beside an engine with these facts, and with what is wrong with its base."""
    engine = SimpleNamespace(facts=lambda: replace(ENGINE, **facts))
    monkeypatch.setattr(choosing, "Engine", lambda: engine)
    monkeypatch.setattr(choosing, "grant", lambda: (BWRAP, ""))
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
        {"problem": fails(InfrastructureError("no context 'x'", "y"))},
        "no container engine answers: no context 'x'",
    ),
}


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
    executor, reason = pick(monkeypatch, "venv", problem=never)
    assert executor == "venv" and reason.startswith(
        "virtual environments, as asked for; sandboxes of bubblewrap as another"
    )
    assert pick(monkeypatch, problem=never, seccomp=False)[0] == "venv"


def test_a_cell_gets_what_the_matrix_says_or_a_share() -> None:
    default = sandbox_limits(Limits(), ENGINE.memory_bytes)
    assert default.memory_bytes == int(0.45 * (16 << 30)) and default.processes == 1024
    assert default.output_bytes == default.memory_bytes, "its folder is in that memory"
    asked = sandbox_limits(Limits(memory_gib=1.5, processes=64, output_gib=8), ENGINE.memory_bytes)
    assert asked.memory_bytes == int(1.5 * (1 << 30)) == asked.output_bytes and asked.processes == 64


# -- a bundle -----------------------------------------------------------------------------------------------------


def test_a_folder_that_is_named_asks_for_its_executor(tmp_path: Path) -> None:
    there = {choosing.BUNDLE_VARIABLE: str(tmp_path / "b")}
    with pytest.raises(InputError, match=choosing.BUNDLE_VARIABLE):
        wanted_bundle("auto", None, there)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / choosing.MANIFEST).write_text("")
    assert wanted_bundle("auto", tmp_path, {}) == tmp_path
    assert wanted_bundle("bundle", tmp_path, there) == tmp_path
    assert wanted_bundle("bundle", None, there) == wanted_bundle("auto", None, there) == tmp_path / "b"
    assert wanted_bundle("auto", None, {}) is None
    assert wanted_bundle("venv", None, there) is None, "what is asked for on the command line wins"


def test_contradictions_are_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--executor venv uses none"):
        wanted_bundle("venv", tmp_path, {})
    with pytest.raises(InputError, match="which one") as caught:
        wanted_bundle("bundle", None, {})
    assert choosing.BUNDLE_VARIABLE in caught.value.remedy


def test_a_bundle_needs_its_kind_of_machine_and_bubblewrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_manifest(tmp_path, {ID: entry()})
    monkeypatch.setattr(choosing, "find_bwrap", lambda: BWRAP)
    choice = choose_bundle(tmp_path)
    assert choice.executor == "bundle" and choice.sandboxes and "bubblewrap as another user" in choice.reason
    monkeypatch.setattr(choosing, "find_bwrap", fails(InfrastructureError("there is no bubblewrap", "install it")))
    with pytest.raises(InfrastructureError, match="no bubblewrap"):
        choose_bundle(tmp_path)
    monkeypatch.setattr(choosing.platform, "machine", lambda: "aarch64")
    with pytest.raises(InputError, match="this machine is aarch64"):
        choose_bundle(tmp_path)


def test_indexes_are_those_it_was_packed_from(tmp_path: Path) -> None:
    write_manifest(tmp_path, {ID: entry()})
    there = load_bundle(tmp_path)
    assert choose_bundled_index(there, "torch2.5.0-cu121-py311", ID) == (PYPI, True)
    assert choose_bundled_index(there, ID, "other") == (PYPI, False)
    assert choose_bundled_index(there, f"{ID}-r3", "other") == (PYPI, False), "replicas share one"
    with pytest.raises(InputError, match=r"has no torch2.1.0-cu121-py311; it has torch2.5.0"):
        bundled_indexes(parse_matrix(WITH_HOST), there, strict=False)
    text = WITH_HOST.replace('  - {torch: "2.1.0", cuda: "12.1", python: "3.11"}\n', "").replace(
        'baseline: "2.1.0"', "baseline: host"
    )
    with pytest.raises(InfrastructureError, match="--strict refuses"):
        bundled_indexes(parse_matrix(text), there, strict=True)
    indexes, reasons = bundled_indexes(parse_matrix(text), there, strict=False)
    assert indexes == {"torch2.5.0-cu121-py311": PYPI} and "packed" in reasons["torch2.5.0-cu121-py311"]
