"""Cells that run any code, in containers and in an unpacked bundle: what a verb may do, this may."""

from __future__ import annotations

import os
import pickle
import sys
import textwrap
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml  # noqa: F401 - before a fork becomes another user, who may not be able to read this Python's packages

from harness.errors import InfrastructureError
from harness.isolate import Answer, Task
from harness.isolate.bundle.executor import BundleExecutor
from harness.isolate.bundle.manifest import load_bundle
from harness.isolate.docker.engine import Engine
from harness.isolate.docker.executor import DockerExecutor
from harness.isolate.namespaces import probe_namespaces
from harness.isolate.sandbox import SandboxLimits
from tests.messages import made
from tests.projects import command_lines

LIMITS = SandboxLimits(memory_bytes=512 << 20, processes=96, output_bytes=64 << 20, output_files=4096)
BUNDLED = "torch2.5.0-pypi-py311"  # what the bundle of these tests has
SLEEP_S = "86353"  # what cells leave asleep
# In place of harness/worker: a verb that runs the code of its request as the code under test would run.
WORKER = """\
import json, sys
verb, asked, answered = sys.argv[1:]
request = json.load(open(asked))
result = {}
exec(request["code"])
with open(answered + ".part", "w") as file:
    json.dump(result, file)
import os
os.replace(answered + ".part", answered)
"""
# `attempt` leaves what an act achieved in `result`, or the error's name.
ATTEMPT = """
import ctypes, errno, os, socket, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, act):
    try:
        result[name] = f"achieved: {act()!r}"
    except Exception as error:
        result[name] = errno.errorcode.get(getattr(error, "errno", None), repr(error))
def call(name, *arguments):
    if libc[name](*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)
"""


def stage_code(folder: Path) -> Path:
    """A folder with a worker whose only verb runs its request's code."""
    (folder / "worker").mkdir(parents=True, exist_ok=True)
    (folder / "worker" / "__init__.py").write_text("")
    (folder / "worker" / "__main__.py").write_text(WORKER)
    return folder


class AnyCells(ABC):
    environment: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.staged = stage_code(folder / "fake")

    def task(self, code: str, timeout_s: float = 60, **options: Any) -> Task:
        name = uuid.uuid4().hex
        return Task(
            environment=self.environment,
            name="code",
            timeout_s=timeout_s,
            request=made(code=textwrap.dedent(code), **options.pop("request", {})),
            scratch=self.folder / "scratch" / name,
            log=self.folder / "logs" / f"{name}.log",
            **options,
        )

    @abstractmethod
    def __call__(self, code: str, timeout_s: float = 60, **options: Any) -> Answer: ...

    def result(self, code: str, **options: Any) -> dict[str, Any]:
        """What the code put into `result`."""
        answer = self(code, **options)
        assert answer.result is not None, (answer.ended.how, answer.ended.log)
        return answer.result

    def attempts(self, code: str, reads: tuple[Path, ...] = (), **request: Any) -> dict[str, str]:
        """What each attempt of the code achieved, or its error's name."""
        return self.result(ATTEMPT + textwrap.dedent(code), request=request, reads=reads)


class Cells(AnyCells):
    """Cells of one image."""

    environment = "here"

    def __init__(self, engine: Engine, image: str, folder: Path, limits: SandboxLimits = LIMITS) -> None:
        super().__init__(folder)
        self.executor = DockerExecutor(engine, folder / "project", folder / "cache", 2, limits=limits)
        self.executor.worker = self.staged
        self.executor._images[self.environment] = image

    def __call__(self, code: str, timeout_s: float = 60, **options: Any) -> Answer:
        return self.executor.run(self.task(code, timeout_s, **options))


class BundleCells(AnyCells):
    """Cells of an unpacked bundle, as root or as a user without rights."""

    environment = BUNDLED

    def __init__(self, unpacked: Path, folder: Path, user: int | None) -> None:
        super().__init__(folder)
        self.user, self.bundle = user, load_bundle(unpacked)
        if user is not None:
            for path in [folder, *folder.rglob("*")]:
                os.chown(path, user, user)
        self.namespaces = forked(lambda: probe_namespaces(self.bundle.maker), user)

    def __call__(self, code: str, timeout_s: float = 60, **options: Any) -> Answer:
        task = self.task(code, timeout_s, **options)

        def run() -> Answer:
            sys.executable = str(self.bundle.maker.python)  # as the command that a bundle brings; any user may run it
            executor = BundleExecutor(self.bundle, self.namespaces, self.folder / "project", self.folder / "cache", 2)
            executor.worker = self.staged
            return executor.run(task)

        answer: Answer = forked(run, self.user)
        return answer


def forked(function: Callable[[], Any], user: int | None) -> Any:
    """What a function gives in a child process, as another user; InfrastructureError as it was raised there."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.close(ours)
        try:
            if user is not None:
                os.setgroups([])
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
            answer = ("value", function())
        except InfrastructureError as error:
            answer = ("infrastructure", error.message)
        except BaseException as error:
            answer = ("error", repr(error))
        with open(theirs, "wb") as file:
            pickle.dump(answer, file)
        os._exit(0)
    os.close(theirs)
    with open(ours, "rb") as file:
        kind, value = pickle.load(file)
    os.waitpid(child, 0)
    if kind == "infrastructure":
        raise InfrastructureError(value)
    assert kind == "value", value
    return value


def achieved(result: dict[str, str]) -> dict[str, str]:
    return {name: said for name, said in result.items() if said.startswith("achieved")}


def asleep() -> list[int]:
    """Processes of this machine that a cell left asleep."""
    return [process for process, words in command_lines().items() if SLEEP_S in words]
