"""Which Python interpreter an environment is made with."""

from __future__ import annotations

import functools
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from harness.errors import InfrastructureError
from harness.tools import output_of, uv_command

# A path may be a shim, so the interpreter itself says where it is.
_PROBE = (
    "import json, os, platform, sys, sysconfig; include = sysconfig.get_path('include');"
    "print(json.dumps([os.path.realpath(sys.executable), platform.python_version(),"
    " os.path.exists(os.path.join(include, 'Python.h'))]))"
)


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    path: str
    version: str
    headers: bool

    def __str__(self) -> str:
        return f"{self.path} ({self.version}{'' if self.headers else ', without headers'})"


def _inspect(path: str) -> Interpreter | None:
    printed = output_of([path, "-I", "-c", _PROBE])
    if printed is None:
        return None
    real, version, headers = json.loads(printed)
    return Interpreter(path=real, version=version, headers=headers)


@functools.cache
def installed(python: str) -> tuple[Interpreter, ...]:
    """Interpreters of this version on the machine; those with C headers first: extensions need Python.h."""
    printed = output_of(
        [*uv_command(), "python", "list", "--no-config", "--only-installed", "--output-format", "json", python]
    )
    paths = [entry["path"] for entry in json.loads(printed or "[]") if entry.get("path")]
    real = dict.fromkeys(str(Path(path).resolve()) for path in paths)
    found = dict.fromkeys(interpreter for interpreter in map(_inspect, real) if interpreter)
    return tuple(sorted(found, key=lambda interpreter: not interpreter.headers))


def find_interpreter(python: str) -> Interpreter | None:
    return next(iter(installed(python)), None)


def need_interpreter(python: str) -> Interpreter:
    """An interpreter with headers, fetched by uv where the machine has none. InfrastructureError names the package."""
    if (found := find_interpreter(python)) and found.headers:
        return found
    command = [*uv_command(), "python", "install", "--no-config", python]
    fetched = subprocess.run(command, capture_output=True, text=True)
    installed.cache_clear()
    if (found := find_interpreter(python)) and found.headers:
        return found
    packages = f"python{python} python{python}-dev python{python}-venv"
    problem = (
        f"Python {python} is here ({found.path}) without its C headers, which building extensions needs"
        if found
        else f"Python {python} is not on this machine"
    )
    reason = " ".join(fetched.stderr.split())[-200:]
    raise InfrastructureError(
        f"{problem}, and uv could not fetch one: {reason}",
        f"apt-get install {packages} (Ubuntu: from the deadsnakes archive where it is not packaged), "
        "or set another `python` in matrix.yaml",
    )
