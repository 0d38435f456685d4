from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.errors import Interrupted, Unrecorded
from harness.executors import Task, Terms
from harness.executors import engine as engines
from harness.executors.docker import DockerExecutor, sweep
from harness.executors.engine import Engine, EngineGone, EngineRefused, find_gpu_way
from harness.executors.process import is_orphan, owner
from harness.executors.sandbox import SandboxLimits, sandbox_paths, unconfined
from harness.schema.environment_records import Confinement
from harness.worker.protocol import read_result
from tests.messages import made

LIMITS = SandboxLimits(memory_bytes=3 << 29, processes=64, output_bytes=1 << 20, output_files=100)
CONFINED = Confinement(
    user_id=10002,
    no_new_privileges=True,
    seccomp=2,
    capabilities="0000000000000000",
    networks=["lo"],
    root_writable=False,
    memory_bytes=1,
    processes=1,
)


class FakeEngine:
    address = "unix:///there"

    def __init__(self, owners: Mapping[str, str] | None = None, *, is_there: bool = True) -> None:
        self.is_there, self.owners = is_there, owners or {}
        self.removed: list[str] = []

    def answers(self) -> bool:
        return self.is_there

    def owned(self, kind: str) -> list[tuple[str, str]]:
        return list(self.owners.items()) if kind == "container" else []

    def remove(self, _kind: str, name: str) -> None:
        self.removed.append(name)


def executor(tmp_path: Path, engine: Any) -> DockerExecutor:
    return DockerExecutor(engine, tmp_path / "project", tmp_path / "cache", 2, limits=LIMITS)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ""),
        ({"user_id": 0}, "user 0"),
        ({"no_new_privileges": False}, "privileges"),
        ({"seccomp": 0}, "seccomp"),
        ({"capabilities": "00000000a80425fb"}, "capabilities"),
        ({"capabilities": ""}, "capabilities"),
        ({"networks": ["eth0", "lo"]}, "network: eth0"),
        ({"root_writable": True}, "write"),
        ({"memory_bytes": None}, "memory is not limited"),
        ({"memory_bytes": LIMITS.memory_bytes + 4096}, "memory is not limited"),
        ({"processes": None}, "processes are not limited"),
        ({"processes": LIMITS.processes + 1}, "processes are not limited"),
    ],
)
def test_a_cell_that_is_not_confined_is_told(changes: dict[str, Any], said: str) -> None:
    problem = unconfined(replace(CONFINED, **changes), LIMITS)
    assert said in problem and bool(problem) is bool(said)
    assert unconfined(None, LIMITS), "what says nothing is not confined"


def test_an_owner_that_lives_is_none_of_a_crash() -> None:
    machine, pid, created = owner().split("-")
    assert not is_orphan(owner()) and int(pid) == os.getpid()
    assert is_orphan(f"{machine}-{pid}-1"), "another process with its number"
    free = next(number for number in range(4_000_000, 4_100_000) if not psutil.pid_exists(number))
    assert is_orphan(f"{machine}-{free}-{created}")
    assert not is_orphan("") and not is_orphan(f"{machine}-x"), "what names nobody is nobody's"
    assert not is_orphan(f"elsewhere-{free}-{created}"), "nothing is known of another machine's"


def test_only_what_a_crash_left_is_removed() -> None:
    machine = owner().split("-")[0]
    engine: Any = FakeEngine({"a": owner(), "b": f"{machine}-{os.getpid()}-1", "c": "other-1-1"})
    assert sweep(engine) == 1 and engine.removed == ["b"]


def task_in(folder: Path) -> Task:
    return Task(
        environment="e",
        name="v",
        request=made(),
        scratch=folder / "s",
        log=folder / "l",
        terms=Terms(timeout_s=1),
    )


def test_an_engine_that_goes_away_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_task: Task) -> Any:
        raise EngineGone("cut off")

    cells = executor(tmp_path, FakeEngine())
    monkeypatch.setattr(cells, "_run_in_container", fails)
    with pytest.raises(Unrecorded, match="at unix:///there went away: cut off") as caught:
        cells.run(task_in(tmp_path))
    assert "the same command" in caught.value.remedy and not (tmp_path / "s").exists()


@pytest.mark.process
@pytest.mark.parametrize(("code", "said"), [("echo out; echo err >&2; exit 3", "err"), ("yes", ""), ("echo all", "")])
def test_what_a_command_prints_is_read_in_a_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, said: str
) -> None:
    program = tmp_path / "docker"
    program.write_text(f"#!/bin/sh\n{code}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    engine = Engine.__new__(Engine)
    engine.environment = dict(os.environ)
    if code == "yes":  # which nobody reads to its end
        with pytest.raises(ValueError), engine.stream("cp") as stream:
            assert stream.read(2) == b"y\n"
            raise ValueError
        return
    with pytest.raises(EngineGone, match=said) if said else contextlib.nullcontext(), engine.stream("cp") as stream:
        assert stream.read() in (b"out\n", b"all\n")


def test_a_run_that_was_stopped_tries_nothing(tmp_path: Path) -> None:
    engine: Any = FakeEngine({"mine": owner(), "other": "x-1-1"})
    cells = executor(tmp_path, engine)
    cells.stop()
    assert engine.removed == ["mine"]
    with pytest.raises(Interrupted):
        cells.run(None)  # type: ignore[arg-type]


SPECIFIED = "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n"


def test_how_an_engine_hands_gpus_over(tmp_path: Path) -> None:
    (tmp_path / "nvidia.yaml").write_text(SPECIFIED)
    here = {"CDISpecDirs": [str(tmp_path), str(tmp_path / "nowhere")]}
    assert find_gpu_way({"Runtimes": {"nvidia": {}, "runc": {}}}, local=True) == "nvidia"
    assert find_gpu_way({"DiscoveredDevices": [{"ID": "nvidia.com/gpu=0"}]}, local=False) == "cdi"
    assert find_gpu_way(here, local=True) == "cdi" and find_gpu_way(here, local=False) == ""
    (tmp_path / "nvidia.yaml").write_text("kind: other.com/device\n")
    assert find_gpu_way(here, local=True) == find_gpu_way({}, local=True) == ""


def test_places_of_a_request(tmp_path: Path) -> None:
    root = tmp_path / "project"
    out, truth, stored = root / "reports" / "runs" / "out", tmp_path / "truth", tmp_path / "cache" / "stored"
    task = Task(
        environment="e",
        name="v",
        request=made(),
        scratch=tmp_path,
        log=tmp_path,
        terms=Terms(timeout_s=1),
        reads=(root / "csrc" / "x.cu", stored, truth, out),
        writes=(truth, tmp_path / "arrays.npz"),
    )
    places, outputs = sandbox_paths(task, root)
    assert places[str(root)] == "/in/project" and str(root / "csrc" / "x.cu") not in places
    assert places[str(stored)] == "/in/1/stored" and places[str(out)] == "/in/3/out"
    assert places[str(truth)] == "/out/w0" and places[str(tmp_path / "arrays.npz")] == "/out/w1"
    assert outputs == {"w0": truth, "w1": tmp_path / "arrays.npz"}


@pytest.mark.parametrize(
    ("code", "is_there", "expected"), [(0, True, None), (1, True, EngineRefused), (1, False, EngineGone)]
)
def test_a_command_that_fails_is_refused_by_an_engine_that_answers(
    monkeypatch: pytest.MonkeyPatch, code: int, is_there: bool, expected: type[Exception] | None
) -> None:
    def run(words: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        if words[1] == "version":
            return subprocess.CompletedProcess(words, 0 if is_there else 1, b"28", b"nobody is there")
        return subprocess.CompletedProcess(words, code, b"made", b"no space left on device")

    monkeypatch.setattr(engines.subprocess, "run", run)
    engine = Engine.__new__(Engine)
    engine.environment = dict(os.environ)
    if expected is None:
        assert engine.call("create") == "made"
        return
    with pytest.raises(expected) as caught:
        engine.call("create")
    assert type(caught.value) is expected
    assert ("disk is full" in str(caught.value)) is (expected is EngineRefused)
    engine.remove("container", "c")
    if is_there:
        assert engine.find("image", "x") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "7",
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": -Infinity}',
        '{"a":' + "[" * 100 + "]" * 100 + "}",
        "[" * 100_000,
        '{"a": ' + "9" * 5000 + "}",
        "\0\1",
    ],
)
def test_a_result_that_cannot_be_passed_on_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(text)
    if text.startswith('{"a": 9') and not hasattr(__import__("sys"), "set_int_max_str_digits"):
        pytest.skip("this Python reads numbers of any length")
    assert read_result(path) is None


def test_a_result_that_is_one_is_read(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text('{"a": [1, 2.5, null, {"b": [[["c"]]]}]}')
    assert read_result(path) == {"a": [1, 2.5, None, {"b": [[["c"]]]}]}
    assert read_result(tmp_path / "none") is None
