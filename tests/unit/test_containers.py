from __future__ import annotations

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
from harness.executors import docker as containers
from harness.executors import engine as engines
from harness.executors.docker import Counts, DockerExecutor, read_counts, sweep
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

    def remove(self, _kind: str, name: str) -> bool:
        self.removed.append(name)
        return True

    def remove_lost(self) -> None:
        pass


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
    machine, pid, created = owner().split("/")
    assert not is_orphan(owner()) and int(pid) == os.getpid()
    assert is_orphan(f"{machine}/{pid}/1.00"), "another process with its number"
    free = next(number for number in range(4_000_000, 4_100_000) if not psutil.pid_exists(number))
    assert is_orphan(f"{machine}/{free}/{created}")
    assert not is_orphan("") and not is_orphan(f"{machine}/x"), "what names nobody is nobody's"
    assert not is_orphan(f"elsewhere/{free}/{created}"), "nothing is known of another machine's"


def test_only_what_a_crash_left_is_removed() -> None:
    machine = owner().split("/")[0]
    engine: Any = FakeEngine({"a": owner(), "b": f"{machine}/{os.getpid()}/1.00", "c": "other/1/1.00"})
    assert sweep(engine) == 1 and engine.removed == ["b"]


V2 = "memory.events max {}\nmemory.events oom_kill {}\npids.events max {}\n"
V1 = "memory.oom_control oom_kill {}\nmemory.max_usage_in_bytes {}\nmemory.limit_in_bytes 64\npids.events max {}\n"


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        (V2.format(3, 1, 0), Counts(memory_kills=1)),
        (V2.format(0, 1, 7), Counts(refused_processes=7)),  # the machine's memory was short, not its own
        (V1.format(2, 64, 0), Counts(memory_kills=2)),
        (V1.format(2, 63, 5), Counts(refused_processes=5)),
        ("memory.events oom_kill x\nnonsense\n\0\n", Counts()),
        ("", Counts()),
    ],
)
def test_what_the_kernel_counted(text: str, counts: Counts) -> None:
    assert read_counts(text) == counts


LIMITED = {
    "its memory limit": (Counts(memory_kills=1), {"status": "ok"}, False, "its memory limit of 1.5 GiB"),
    "memory, of all at once": (Counts(), None, True, "its memory limit of 1.5 GiB"),
    "processes": (Counts(refused_processes=1), {"status": "crashed"}, False, "its limit of 64 processes"),
    "processes, survived": (Counts(refused_processes=1), {"status": "ok"}, False, ""),
    "output": (Counts(), {"status": "crashed", "message": "File too large"}, False, "its output limit of"),
    "none": (Counts(), {"status": "crashed", "message": "wrong"}, False, ""),
}


@pytest.mark.parametrize("name", LIMITED)
def test_the_limit_that_ended_a_task_is_named(tmp_path: Path, name: str) -> None:
    counts, result, oom, said = LIMITED[name]
    found = executor(tmp_path, FakeEngine())._limit(task_in(tmp_path), counts, result, oom=oom)
    assert found.startswith(said) and bool(found) is bool(said)


def task_in(folder: Path) -> Task:
    return Task(
        environment="e",
        name="v",
        request=made(),
        scratch=folder / "s",
        log=folder / "l",
        terms=Terms(timeout_s=1),
    )


def test_a_task_is_tried_again_and_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "AWAY_S", 0.2)
    tried: list[int] = []

    def fails(_task: Task) -> Any:
        tried.append(1)
        raise EngineGone("cut off")

    def attempts(*, is_there: bool) -> int:
        cells = executor(tmp_path, FakeEngine(is_there=is_there))
        monkeypatch.setattr(cells, "_attempt", fails)
        tried.clear()
        with pytest.raises(Unrecorded, match="at unix:///there went away: cut off") as caught:
            cells.run(task_in(tmp_path))
        assert "the same command" in caught.value.remedy and not (tmp_path / "s").exists()
        return len(tried)

    assert attempts(is_there=True) == 3 and attempts(is_there=False) == 1
    cells = executor(tmp_path, FakeEngine())
    monkeypatch.setattr(cells, "_attempt", fails)
    tried.clear()
    answer = cells.run(replace(task_in(tmp_path), terms=Terms(timeout_s=1, link=Path("/volume"))))
    assert answer.result is None and answer.ended.from_outside and len(tried) == 1, "not without the other"


def test_a_run_that_was_stopped_tries_nothing(tmp_path: Path) -> None:
    engine: Any = FakeEngine({"mine": owner(), "other": "x/1/1"})
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
    if expected is None:
        assert engine.call("create") == "made"
        return
    with pytest.raises(expected) as caught:
        engine.call("create")
    assert type(caught.value) is expected
    assert ("disk is full" in str(caught.value)) is (expected is EngineRefused)
    assert engine.remove("container", "c") is is_there
    if is_there:
        assert engine.find("image", "x") is None


def test_what_could_not_be_removed_is_removed_when_the_engine_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, answers = Engine.__new__(Engine), [False, True]
    engine.lost = {"c"}
    monkeypatch.setattr(engine, "remove", lambda kind, name: answers.pop(0))
    engine.remove_lost()
    assert engine.lost == {"c"}
    engine.remove_lost()
    assert not engine.lost


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
