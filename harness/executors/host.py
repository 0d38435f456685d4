"""Executor `host`: the PyTorch that this machine has, as it is. Nothing is installed; versions are observed.

It runs as processes of this machine whichever executor the pinned environments use, in sandboxes as those of `venv`.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from harness.config import keys
from harness.config.plan import PlannedEnvironment
from harness.errors import InfrastructureError
from harness.executors import Answer, Executor, Task
from harness.executors.base import stage
from harness.executors.bwrap import interpreter
from harness.executors.process import clean_environment
from harness.executors.venv import ProcessExecutor
from harness.schema.environment_records import EnvironmentRecord, Observation
from harness.tools import cuda_compiler, host_compiler

PYTHON_VARIABLE = "KERNEL_MATRIX_HOST_PYTHON"
PROBE_TIMEOUT_S = 60
REMEDY = f"name a Python that can import torch and numpy: export {PYTHON_VARIABLE}=/path/to/python"
# What of its packages can move a number. A machine's Python holds hundreds of others.
RELEVANT = ("torch", "numpy", "triton", "nvidia-", "ninja", "setuptools")
# Nothing of it is imported here: finding PyTorch takes a tenth of a second, importing it several.
_PROBE = """\
import importlib.util, json, platform, site, sys
from worker import wheels
def origin(name):
    found = importlib.util.find_spec(name)
    return found.origin if found else None
print(json.dumps({"path": sys.executable, "version": platform.python_version(), "user_base": site.getuserbase(),
                  "torch": origin("torch"), "numpy": origin("numpy"), "wheels": wheels.installed()}))
"""


@dataclass(frozen=True, kw_only=True)
class HostPython:
    """An interpreter of this machine that has PyTorch. `key` is the digest of what it imports."""

    path: str
    version: str
    torch: str
    user_base: str
    key: str

    def __str__(self) -> str:
        return f"{self.path} ({self.version}, PyTorch {self.torch})"


def candidates() -> list[str]:
    """Interpreters to ask, in order: the one that was named, and no other; else the harness's own, and the PATH's.

    A session of nox has a Python of its own first on the PATH, which the harness runs in, and which has no PyTorch.
    """
    named = os.environ.get(PYTHON_VARIABLE)
    if named:
        return [named]
    folders = os.environ.get("PATH", "").split(os.pathsep)
    on_path = [shutil.which(name, path=folder) for folder in folders if folder for name in ("python3", "python")]
    return list(dict.fromkeys(path for path in (sys.executable, *on_path) if path))


def inspect(path: str, worker: Path) -> HostPython | str:
    """Return what an interpreter has, or why it will not do. `worker` is the staged copy of `harness/worker`."""
    variables = clean_environment({"PYTHONPATH": str(worker), "PYTHONNOUSERSITE": "", "PYTHONDONTWRITEBYTECODE": "1"})
    try:
        done = subprocess.run(
            [path, "-c", _PROBE], capture_output=True, text=True, env=variables, timeout=PROBE_TIMEOUT_S
        )
        seen = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        why = getattr(error, "strerror", None) or "it does not answer as one"
        return f"{path} does not run as a Python: {why}"
    missing = [name for name in ("torch", "numpy") if not seen[name]]
    if missing:
        return f"{path} has no {' and no '.join(missing)}"
    wheels = {name: wheel for name, wheel in seen["wheels"].items() if name.startswith(RELEVANT)}
    imported = {name: seen[name] for name in ("path", "version", "torch", "numpy")}
    return HostPython(
        path=seen["path"],
        version=seen["version"],
        torch=wheels.get("torch", {}).get("version", "of an unknown version"),
        user_base=seen["user_base"],
        key=keys.of("host_python", **imported, wheels=wheels),
    )


@functools.cache
def find_host_python(worker: Path) -> HostPython:
    """Find the interpreter that `torch: host` means. InfrastructureError where none has PyTorch and numpy."""
    problems: list[str] = []
    for path in candidates():
        python = inspect(path, worker)
        if isinstance(python, HostPython):
            return python
        problems.append(python)
    named = f"{PYTHON_VARIABLE}: " if os.environ.get(PYTHON_VARIABLE) else ""
    problem = "; ".join(problems) or "there is no python3 on the PATH"
    raise InfrastructureError(f"torch: host: {named}{problem}", REMEDY)


def host_identity(cache: Path) -> str:
    """Return what `torch: host` is here, for the plan: it is another run where that changes."""
    try:
        python = find_host_python(stage(cache))
    except InfrastructureError as error:
        if os.environ.get(PYTHON_VARIABLE):  # what was named must do: no other is tried
            raise
        return error.message
    return f"{python}, {python.key[:12]}"


class HostExecutor(ProcessExecutor):
    name = "host"

    def folder(self, environment: EnvironmentRecord) -> Path:
        return Path(find_host_python(self.worker).path).parent.parent

    def key(self, environment: PlannedEnvironment, pins: Path | None) -> str:
        python = find_host_python(self.worker)
        return keys.of(
            "host", id=environment.id, host_python=python.key, compiler=host_compiler(), nvcc=cuda_compiler()
        )

    def _make(self, environment: PlannedEnvironment, pins: Path | None, key: str) -> tuple[Observation, bool, str]:
        # No file is verified: what was edited here is the machine's own.
        seen = self._observe(environment, verify=False, remedy=REMEDY)
        for name in ("numpy", "torch"):
            if not getattr(seen, name):
                why = seen.settings.get(name, "is missing")
                raise InfrastructureError(f"{find_host_python(self.worker).path}: {name} {why}", REMEDY)
        return seen, True, ""

    def python(self, environment: str) -> Path:
        return Path(find_host_python(self.worker).path)

    def _own_variables(self, task: Task, python: Path) -> dict[str, str]:
        # Its packages may be the user's own, below a home that the process does not see.
        return {"PYTHONNOUSERSITE": "", "PYTHONUSERBASE": find_host_python(self.worker).user_base}

    def _folders(self, python: Path) -> tuple[Path, ...]:
        return interpreter(python, find_host_python(self.worker).user_base)


class WithHost:
    """The host's environments beside those of another executor."""

    def __init__(self, pinned: Executor, host: HostExecutor, hosts: Sequence[str]) -> None:
        """`hosts` are the ids of the host's environments: one, and replicas of it."""
        self.name, self.holds_back = pinned.name, pinned.holds_back
        self.pinned, self.host, self.hosts = pinned, host, frozenset(hosts)

    def _of(self, id: str) -> Executor:
        return self.host if id in self.hosts else self.pinned

    def folder(self, environment: EnvironmentRecord) -> Path:
        return self._of(environment.id).folder(environment)

    def key(self, environment: PlannedEnvironment, pins: Path | None) -> str:
        return self._of(environment.id).key(environment, pins)

    def prepare(self, environment: PlannedEnvironment, pins: Path | None) -> EnvironmentRecord:
        return self._of(environment.id).prepare(environment, pins)

    def binds(self, environment: str) -> bool:
        return self._of(environment).binds(environment)

    def run(self, task: Task) -> Answer:
        return self._of(task.environment).run(task)

    def linking(self, environment: str) -> AbstractContextManager[Path]:
        return self._of(environment).linking(environment)

    def stop(self) -> None:
        self.pinned.stop()
        self.host.stop()
