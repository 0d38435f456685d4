"""Executor `venv`: an environment is a virtual environment, made by uv from its pin file.

It needs neither a container engine nor root. Tasks run in sandboxes of bubblewrap. Where that is missing or cannot
run, a candidate can reach whatever the user can, and the page says so.
"""

from __future__ import annotations

import abc
import errno
import os
import shutil
import subprocess
from pathlib import Path

from harness.config import keys
from harness.config.interpreters import need_interpreter
from harness.config.pins import index_options, wheel_of
from harness.config.plan import PlannedEnvironment
from harness.errors import InfrastructureError, Interrupted
from harness.executors import Answer, Task, Variables
from harness.executors.base import BaseExecutor, keep_wheels, kept_wheels, mismatch
from harness.executors.bwrap import Bwrap, Process, compilers, interpreter, own_devices, run_confined
from harness.executors.sandbox import SandboxLimits, run_task, thread_variables
from harness.schema.environment_records import EnvironmentRecord, Observation
from harness.tools import cache_lock, uv_command
from harness.worker import codec, protocol, wire

# Without stored bytecode importing torch takes three times as long; what runs candidates stores none.
STORES_BYTECODE = ("observe", "build", "judge", "store")


class ProcessExecutor(BaseExecutor):
    """Tasks are processes of this machine: each in a sandbox of its own where there is bubblewrap, else plain."""

    holds_back = True

    def __init__(
        self,
        cache: Path,
        threads: int,
        variables: Variables | None = None,
        bwrap: Bwrap | None = None,
        limits: SandboxLimits | None = None,
    ) -> None:
        super().__init__(cache, threads, variables)
        self.bwrap, self.limits = bwrap, limits

    @abc.abstractmethod
    def python(self, environment: str) -> Path:
        """Return the interpreter of a prepared environment."""

    @abc.abstractmethod
    def _own_variables(self, task: Task, python: Path) -> dict[str, str]: ...

    def binds(self, environment: str) -> bool:
        return self.bwrap is not None

    def run(self, task: Task) -> Answer:
        self._refuse_if_stopped()  # it waited, for a lock, while what held that was ended
        python = self.python(task.environment)
        variables = {
            "PYTHONPATH": str(self.worker),
            "PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}",
            **thread_variables(self.threads),
            **self._own_variables(task, python),
            **task.terms.variables_of(task.environment, self.variables),
        }
        if self.bwrap is None:
            answer = self._run_plainly(task, python, variables)
        else:
            answer = run_confined(task, self._process(task, variables), self.bwrap, self.limits)
        self._refuse_if_stopped()
        if answer.result is None and not self._is_there(task.environment):  # no kernel's fault
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(python))
        return answer

    def _process(self, task: Task, variables: dict[str, str]) -> Process:
        python = self.python(task.environment)
        return Process(
            python=python,
            worker=self.worker,
            variables=variables,
            folders=(*self._folders(python), *compilers()),
            mounts=tuple(own_devices()),
        )

    def _is_there(self, environment: str) -> bool:
        """Tell whether an environment's interpreter lies where it did."""
        return self.python(environment).exists()

    def _folders(self, python: Path) -> tuple[Path, ...]:
        """Return what the interpreter reads."""
        return interpreter(python)

    def _run_plainly(self, task: Task, python: Path, variables: dict[str, str]) -> Answer:
        shutil.rmtree(task.scratch, ignore_errors=True)
        home = task.scratch / "home"
        home.mkdir(parents=True)
        request, result = task.scratch / "request.json", task.scratch / "result.json"
        protocol.write_json(str(request), codec.dump(task.request))
        command = [str(python), "-m", "worker", task.name, str(request), str(result)]
        ended = run_task(task, command, {"HOME": str(home), **variables})
        value = protocol.read_result(result) if ended.returncode == 0 and not ended.timed_out else None
        shutil.rmtree(task.scratch, ignore_errors=True)
        return Answer(result=value, ended=ended)


class VenvExecutor(ProcessExecutor):
    name = "venv"

    def __init__(
        self,
        cache: Path,
        threads: int,
        variables: Variables | None = None,
        bwrap: Bwrap | None = None,
        limits: SandboxLimits | None = None,
    ) -> None:
        super().__init__(cache, threads, variables, bwrap, limits)
        self._pythons: dict[str, Path] = {}

    def _folder(self, id: str, key: str) -> Path:
        return self.cache / "environments" / f"{id}-{key[:12]}"

    def folder(self, environment: EnvironmentRecord) -> Path:
        return self._folder(environment.id, environment.key)

    def key(self, environment: PlannedEnvironment, pins: Path | None) -> str:
        assert pins is not None
        return keys.of(
            "venv",
            id=environment.id,
            wheels_from=environment.index,
            replica=environment.spec.replica,
            pins=protocol.sha256_file(str(pins)),
            interpreter=str(need_interpreter(environment.spec.python)),
        )

    def _make(self, environment: PlannedEnvironment, pins: Path | None, key: str) -> tuple[Observation, bool, str]:
        assert pins is not None
        folder = self._folder(environment.id, key)
        marker, remedy = folder / "complete.json", f"remove {folder} and start again"
        with cache_lock(self.cache, folder.name):
            reused = kept_wheels(marker) is not None
            if not reused:
                self._install(environment, pins, folder)
            self._refuse_if_stopped()
            self._pythons[environment.id] = folder / "venv" / "bin" / "python"
            observed = self._observe(environment, verify=not reused, remedy=remedy)
            if reused or not mismatch(environment, pins, observed):
                keep_wheels(marker, observed, remedy)
        return observed, reused, ""

    def _install(self, environment: PlannedEnvironment, pins: Path, folder: Path) -> None:
        if folder.exists():  # an interrupted installation
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        venv, wheel = folder / "venv", wheel_of(pins, environment)
        indexes = index_options(environment, wheel.parent if wheel else None)
        _uv("venv", "--no-config", "--python", need_interpreter(environment.spec.python).path, str(venv))
        _uv(
            "pip",
            "install",
            "--no-config",
            "--python",
            str(venv / "bin" / "python"),
            "--require-hashes",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--compile-bytecode",
            *indexes,
            "--requirements",
            str(pins),
        )

    def python(self, environment: str) -> Path:
        return self._pythons[environment]

    def _own_variables(self, task: Task, python: Path) -> dict[str, str]:
        name = task.request.task if isinstance(task.request, wire.BatchRequest) else task.name
        stores = self.bwrap is None and name in STORES_BYTECODE  # in a sandbox none can be
        stored = {} if stores else {"PYTHONDONTWRITEBYTECODE": "1"}
        return {"VIRTUAL_ENV": str(python.parent.parent), **stored}

    def _folders(self, python: Path) -> tuple[Path, ...]:
        return (*interpreter(python), python.parent.parent)


def _uv(*arguments: str) -> None:
    done = subprocess.run(
        [*uv_command(), *arguments],
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"},
    )
    if done.returncode < 0:
        raise Interrupted()
    if done.returncode:
        raise InfrastructureError(
            f"uv {arguments[0]} failed: {' '.join(done.stderr.split())[-800:]}",
            "check disk and network with: nox -s doctor",
        )
