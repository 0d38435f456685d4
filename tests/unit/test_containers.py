from __future__ import annotations

import contextlib
import http.client
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import docker.errors
import psutil
import pytest
import requests

from harness.errors import InfrastructureError, Interrupted, Unrecorded
from harness.isolate import Task, read_result
from harness.isolate.docker import executor as containers
from harness.isolate.docker.connection import EngineGone, EngineRefused, answering
from harness.isolate.docker.container import Container, ContainerDied, _frames, open_container
from harness.isolate.docker.engine import Engine
from harness.isolate.docker.executor import DockerExecutor, sweep
from harness.isolate.process import is_orphan, owner
from harness.isolate.sandbox import SandboxLimits, sandbox_paths, unconfined
from harness.schema.environment_records import Confinement
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
    def __init__(self, history: dict[str, str] | None = None, leftovers: list[tuple[str, str]] = []) -> None:  # noqa: B006
        self.address = "unix:///there"
        self._history, self._leftovers = history, leftovers
        self.removed: list[str] = []

    def answers(self) -> bool:
        return self._history is not None

    def history(self, _container: str) -> dict[str, str]:
        return self._history or {}

    def leftovers(self) -> list[tuple[str, str]]:
        return self._leftovers

    def volumes(self) -> list[tuple[str, str]]:
        return []

    def remove_container(self, container: str) -> None:
        self.removed.append(container)

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
    engine: Any = FakeEngine(leftovers=[("a", owner()), ("b", f"{machine}/{os.getpid()}/1.00"), ("c", "other/1/1.00")])
    assert sweep(engine) == 1 and engine.removed == ["b"]


@pytest.mark.parametrize(
    ("history", "said"),
    [
        ({"start": "", "oom": "", "die": "137"}, "its memory limit of 1.5 GiB"),
        ({"start": "", "oom": ""}, "its memory limit of 1.5 GiB"),
        ({"start": "", "die": "137"}, "its memory limit of 1.5 GiB"),  # by the kernel, before its engine saw why
        ({"start": "", "kill": "", "die": "137"}, None),  # by somebody
        ({"start": "", "die": "0"}, None),  # the keeper lost its connection
        ({"start": ""}, None),
        ({}, None),  # a new engine knows nothing of it
        (None, None),  # nobody is there
    ],
)
def test_what_ended_a_cell_is_its_limit_or_nothing_of_its_own(
    tmp_path: Path, history: dict[str, str] | None, said: str | None
) -> None:
    cells = executor(tmp_path, FakeEngine(history))
    dead: Any = SimpleNamespace(container="c")
    if said is not None:
        assert cells._why_it_died(dead, ContainerDied("x")) == said
        return
    with pytest.raises(EngineGone):
        cells._why_it_died(dead, ContainerDied("x"))


def test_a_verb_is_tried_again_and_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "AWAY_S", 0.2)
    tried: list[int] = []

    def fails(_task: Task) -> Any:
        tried.append(1)
        raise EngineGone("cut off")

    task = Task(environment="e", name="v", request=made(), scratch=tmp_path / "s", log=tmp_path / "l", timeout_s=1)

    def attempts(history: dict[str, str] | None) -> int:
        cells = executor(tmp_path, FakeEngine(history))
        monkeypatch.setattr(cells, "_attempt", fails)
        tried.clear()
        with pytest.raises(Unrecorded, match="at unix:///there went away: cut off") as caught:
            cells.run(task)
        assert "the same command" in caught.value.remedy and not task.scratch.exists()
        return len(tried)

    assert attempts({}) == 3 and attempts(None) == 1
    cells = executor(tmp_path, FakeEngine({}))
    monkeypatch.setattr(cells, "_attempt", fails)
    tried.clear()
    answer = cells.run(replace(task, link=Path("/volume")))
    assert answer.result is None and answer.ended.from_outside and len(tried) == 1, "not without the other"


def test_a_run_that_was_stopped_tries_nothing(tmp_path: Path) -> None:
    engine: Any = FakeEngine(leftovers=[("mine", owner()), ("other", "x/1/1")])
    cells = executor(tmp_path, engine)
    cells.stop()
    assert engine.removed == ["mine"]
    with pytest.raises(Interrupted):
        cells.run(None)  # type: ignore[arg-type]


def test_places_of_a_request(tmp_path: Path) -> None:
    root = tmp_path / "project"
    out, truth, stored = root / "reports" / "runs" / "out", tmp_path / "truth", tmp_path / "cache" / "stored"
    task = Task(
        environment="e",
        name="v",
        request=made(),
        scratch=tmp_path,
        log=tmp_path,
        timeout_s=1,
        reads=(root / "csrc" / "x.cu", stored, truth, out),
        writes=(truth, tmp_path / "arrays.npz"),
    )
    places, outputs = sandbox_paths(task, root)
    assert places[str(root)] == "/in/project" and str(root / "csrc" / "x.cu") not in places
    assert places[str(stored)] == "/in/1/stored" and places[str(out)] == "/in/3/out"
    assert places[str(truth)] == "/out/w0" and places[str(tmp_path / "arrays.npz")] == "/out/w1"
    assert outputs == {"w0": truth, "w1": tmp_path / "arrays.npz"}


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (requests.exceptions.ConnectionError("refused"), EngineGone),
        (requests.exceptions.ReadTimeout("slow"), EngineGone),
        (http.client.IncompleteRead(b""), EngineGone),
        (ConnectionResetError(), EngineGone),
        (BrokenPipeError(), EngineGone),
        (docker.errors.DockerException("Error while fetching server API version"), EngineGone),
        (docker.errors.APIError("write: no space left on device"), EngineRefused),
        (docker.errors.APIError("conflict"), EngineRefused),
        (OSError(28, "No space left on device"), OSError),
        (ValueError("a fault of ours"), ValueError),
    ],
)
def test_what_the_sdk_raises_is_one_of_two_errors(raised: Exception, expected: type[Exception]) -> None:
    with pytest.raises(expected) as caught, answering():
        raise raised
    assert type(caught.value) is expected
    if expected is EngineRefused:
        assert ("disk is full" in str(caught.value)) == ("no space" in str(raised))
        assert isinstance(caught.value, InfrastructureError)


class Said:
    """A connection on which an engine sends what is given."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, size: int) -> bytes:
        got, self.data = self.data[:size], self.data[size:]
        return got


def frame(kind: int, data: bytes) -> bytes:
    return bytes([kind, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


def cell(*frames: bytes) -> Container:
    made = Container(None, "c")  # type: ignore[arg-type]
    made.frames = _frames(Said(b"".join(frames)))  # type: ignore[arg-type]
    made.socket = SimpleNamespace(sendall=lambda data: None)
    return made


def test_a_keeper_is_heard_in_whatever_pieces() -> None:
    heard = cell(
        frame(1, b"memory 2\nproc"),
        frame(2, b"tar: complains"),
        frame(1, b"esses 0\nmemory 1\nparcel\nPAR"),
        frame(1, b"CEL"),
    )
    counts, stream = heard.collect()
    assert counts == {"memory": 2, "processes": 0}
    assert stream.read() == b"PARCEL" and heard.complaints == b"tar: complains"


@pytest.mark.parametrize(
    "frames",
    [[], [frame(1, b"memory 1\n")], [frame(1, b"parc")], [frame(1, b"x y\nparcel\n")], [frame(1, b"parcel\n")[:10]]],
)
def test_a_keeper_that_ends_early_is_told(frames: list[bytes]) -> None:
    with pytest.raises(ContainerDied):
        cell(*frames).collect()


@pytest.mark.parametrize("removing", [False, True], ids=["at once", "while it removes"])
def test_an_engine_that_goes_away_before_a_container_is_attached_is_gone_and_cleared_when_back(removing: bool) -> None:
    class Away:
        def create_host_config(self, **_: Any) -> dict[str, Any]:
            return {}

        def create_container(self, *_: Any, **__: Any) -> dict[str, str]:
            return {"Id": "c"}

        def attach_socket(self, *_: Any, **__: Any) -> None:
            raise requests.exceptions.ConnectionError("no such file")

        wait = attach_socket

        def remove_container(self, *_: Any, **__: Any) -> None:
            if removing:
                raise docker.errors.APIError("removal is in progress")
            self.attach_socket()

    class Absent(Engine):
        info = MappingProxyType({"CgroupVersion": "2"})  # type: ignore[assignment]

        def __init__(self) -> None:
            self.lost: set[str] = set()

        @contextlib.contextmanager
        def client(self, timeout_s: float = 0) -> Iterator[Any]:
            yield SimpleNamespace(api=away)

    away, engine = Away(), Absent()
    opened = open_container(
        engine, "image", "", [], limits=LIMITS, input_bytes=0, owner="us", users=(1, 2), compiles=False, gpus=""
    )
    with pytest.raises(EngineGone, match="no such file"), opened:
        pass
    assert engine.lost == {"c"}
    away.remove_container = away.attach_socket  # type: ignore[method-assign]
    with pytest.raises(EngineGone):
        engine.remove_lost()
    removed: list[str] = []
    away.remove_container = lambda container, **_: removed.append(container)  # type: ignore[method-assign]
    engine.remove_lost()
    engine.remove_lost()
    assert removed == ["c"] and not engine.lost, "once it is back, what it may have forgotten to remove is removed"


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
