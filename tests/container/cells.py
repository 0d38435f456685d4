"""Sandboxes that run any code, in containers and under bubblewrap: what a task may do, this may."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import textwrap
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pynvml  # noqa: F401 - before a fork becomes another user, who may not be able to read this Python's packages

from harness.executors import Answer, Task, Terms
from harness.executors.bwrap import Bwrap
from harness.executors.docker import DockerExecutor
from harness.executors.engine import Engine
from harness.executors.sandbox import SandboxLimits
from harness.executors.venv import VenvExecutor
from tests.messages import made
from tests.projects import command_lines

LIMITS = SandboxLimits(memory_bytes=512 << 20, processes=96, output_bytes=64 << 20, output_files=4096)
SYSTEM_PYTHON = "/usr/bin/python3"
SLEEP_S = "86353"  # what cells leave asleep
# In place of harness/worker: a task that runs the code of its request as the code under test would run.
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
    """Make a folder with a worker whose only task runs its request's code."""
    (folder / "worker").mkdir(parents=True, exist_ok=True)
    (folder / "worker" / "__init__.py").write_text("")
    (folder / "worker" / "__main__.py").write_text(WORKER)
    return folder


class AnyCells(ABC):
    environment = "here"
    executor: Any

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.staged = stage_code(folder / "fake")

    def task(self, code: str, timeout_s: float = 60, **options: Any) -> Task:
        name = uuid.uuid4().hex
        terms = {each: options.pop(each) for each in ("gate", "until", "link", "processors") if each in options}
        return Task(
            environment=self.environment,
            name="code",
            terms=Terms(timeout_s=timeout_s, **terms),
            request=made(code=textwrap.dedent(code), **options.pop("request", {})),
            scratch=self.folder / "scratch" / name,
            log=self.folder / "logs" / f"{name}.log",
            **options,
        )

    def __call__(self, code: str, timeout_s: float = 60, **options: Any) -> Answer:
        answer: Answer = self.executor.run(self.task(code, timeout_s, **options))
        return answer

    def result(self, code: str, **options: Any) -> dict[str, Any]:
        """Return what the code put into `result`."""
        answer = self(code, **options)
        assert answer.result is not None, (answer.ended.how, answer.ended.log)
        return answer.result

    def attempts(self, code: str, reads: tuple[Path, ...] = (), **request: Any) -> dict[str, str]:
        """Return what each attempt of the code achieved, or its error's name."""
        return self.result(ATTEMPT + textwrap.dedent(code), request=request, reads=reads)

    def linking(self) -> AbstractContextManager[Path]:
        found: AbstractContextManager[Path] = self.executor.linking(self.environment)
        return found

    @property
    @abstractmethod
    def is_container(self) -> bool: ...


class Cells(AnyCells):
    """Containers of one image."""

    is_container = True

    def __init__(self, engine: Engine, image: str, folder: Path, limits: SandboxLimits = LIMITS) -> None:
        super().__init__(folder)
        self.executor: DockerExecutor = DockerExecutor(engine, folder / "project", folder / "cache", 2, limits=limits)
        self.executor.worker = self.staged
        self.executor._images[self.environment] = image


class OwnPython(VenvExecutor):
    """Tasks of the tests' own Python."""

    def python(self, environment: str) -> Path:
        return Path(sys.executable)


class BwrapCells(AnyCells):
    """Sandboxes of bubblewrap, with this machine's Python; `user`: of a process of that user, in place of ours."""

    is_container = False

    def __init__(self, bwrap: Bwrap | None, folder: Path, user: int | None = None) -> None:
        super().__init__(folder)
        self.user = user
        self.executor: OwnPython = OwnPython(folder / "cache", 2, bwrap=bwrap, limits=LIMITS)
        self.executor.worker = self.staged
        self._open()

    def _open(self) -> None:
        for path in [self.folder, *self.folder.rglob("*")] if self.user else []:
            os.chown(path, self.user or 0, self.user or 0)

    @contextlib.contextmanager
    def linking(self) -> Iterator[Path]:
        with super().linking() as link:
            for path in (link, link.parent) if self.user else ():
                os.chown(path, self.user or 0, self.user or 0)
            yield link

    def __call__(self, code: str, timeout_s: float = 60, **options: Any) -> Answer:
        self._open()
        return forked(lambda: super(BwrapCells, self).__call__(code, timeout_s, **options), self.user)


def forked(function: Callable[[], Answer], user: int | None) -> Answer:
    """Return what a function gives in a child process of another user, who can read the system's Python alone."""
    if user is None:
        return function()
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            sys.executable = SYSTEM_PYTHON
            answer: object = function()
        except BaseException as error:
            answer = repr(error)
        with open(theirs, "wb") as file:
            pickle.dump(answer, file)
        os._exit(0)
    os.close(theirs)
    with open(ours, "rb") as file:
        value = pickle.load(file)
    os.waitpid(child, 0)
    assert isinstance(value, Answer), value
    return value


def achieved(result: Mapping[str, str]) -> dict[str, str]:
    return {name: said for name, said in result.items() if said.startswith("achieved")}


def asleep() -> list[int]:
    """Return the processes of this machine that a cell left asleep."""
    return [process for process, words in command_lines().items() if SLEEP_S in words]
