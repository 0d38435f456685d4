"""Runs one task of this machine's own Python in a sandbox: what it sees of the machine lies where it does outside.

A task sees the system's folders, its interpreter, its environment, the worker and what it reads, none of which it can
write; its scratch folder; and empty folders in place of those that it writes to, from which only what was asked for is
taken back. The user's home, other processes and the network are not there.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import InfrastructureError
from harness.gpu import gpus
from harness.isolate import Answer, Task, read_result
from harness.isolate.namespaces import TRACERS, Maker, Mount, Namespaces, device_mounts, restraints, write_sandbox
from harness.isolate.process import clean_environment, run_child
from harness.isolate.sandbox import USER, SandboxLimits, bring_back, hand_over, refuse_closed, signalled, take_back
from harness.tools import cuda_compiler, host_compiler
from harness.worker import codec, protocol

SEEN = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "opt", "nix")
MACHINE = Maker(python=Path(sys.executable), root=Path("/"), seen=SEEN)
PROBE_TIMEOUT_S = 60
_FOLDERS = "import json, sys; print(json.dumps([sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path]))"


@dataclass(frozen=True, kw_only=True)
class Process:
    """How a task's process starts: its interpreter, its environment's folder, where it has one, and its variables."""

    python: Path
    environment: Path | None
    worker: Path
    variables: Mapping[str, str]
    user_base: str = ""  # where the user's own packages lie, if it imports those


def run_confined(task: Task, process: Process, namespaces: Namespaces, limits: SandboxLimits | None) -> Answer:
    """Run a task to its end. InfrastructureError where it cannot read what it needs."""
    scratch = Path(os.path.realpath(task.scratch))
    shutil.rmtree(scratch, ignore_errors=True)
    own, outputs, new = scratch / "own", scratch / "out", scratch / "root"
    for folder in (own / "home", own / "tmp", outputs, new):
        folder.mkdir(parents=True)
    request = scratch / "request.json"
    protocol.write_json(str(request), codec.dump(task.request))
    parents = {path.parent: outputs / str(number) for number, path in enumerate(task.writes)}
    for parent, stand_in in parents.items():
        parent.mkdir(parents=True, exist_ok=True)
        stand_in.mkdir()
    for path in task.writes:
        if path in task.reads and path.exists():  # what earlier tasks left there, and this one adds to
            shutil.move(path, parents[path.parent] / path.name)
    reads = [path for path in task.reads if path.exists() and path not in task.writes]
    writable = "run" if task.compiles else "rw"
    mounts = [
        *_seen((*interpreter(process.python, process.user_base), *compilers()), "ro"),
        *_seen((process.environment, process.worker, *reads), "ro"),
        *(mount for parent, stand_in in parents.items() for mount in _places(writable, stand_in, parent)),
        *_places(writable, own, scratch),
        *_places("ro", request, request),
        *(_places("rw", task.link, task.link) if task.link else ()),
    ]
    if not namespaces.rootless:
        hand_over((own, *parents.values()))
        refuse_closed((process.worker, *reads))
    own_variables = {"HOME": str(scratch / "home"), "TMPDIR": str(scratch / "tmp"), **USER}
    variables = clean_environment({**process.variables, **own_variables})
    command = [str(process.python), "-m", "worker", task.name, str(request), str(scratch / "result.json")]
    described = scratch / "sandbox.json"
    ended = run_child(
        write_sandbox(
            described,
            MACHINE,
            namespaces,
            new,
            [*devices(), *sorted(mounts, key=_depth)],
            variables,
            command,
            folder=str(scratch),
            may_trace=task.name in TRACERS,
            processors=task.processors,
            limits=restraints(task.name, limits, rootless=namespaces.rootless, sees_gpu=bool(devices())),
        ),
        cwd=scratch,
        log=task.log,
        timeout_s=task.timeout_s,
        environment={},
        gate=task.gate,
        until=task.until,
    )
    take_back((own, *parents.values()))
    for path in task.writes:
        bring_back(parents[path.parent] / path.name, path)
    answer = Answer(
        result=read_result(own / "result.json") if ended.returncode == 0 and not ended.timed_out else None,
        ended=replace(ended, returncode=signalled(ended.returncode)),
    )
    shutil.rmtree(scratch, ignore_errors=True)
    return answer


# -- what is seen, and where ----------------------------------------------------------------------------------------


def _depth(mount: Mount) -> int:
    """A folder is mounted before what lies in it."""
    return len(Path(mount[2]).parts)


def _places(kind: str, source: Path, target: Path) -> Iterator[Mount]:
    """Mounts that show `source` where `target` lies, and where its links lead."""
    real = os.path.realpath(target)
    yield kind, os.path.realpath(source), real
    if real != str(target) and not is_seen(target):
        yield kind, os.path.realpath(source), str(target)


def _seen(paths: Iterable[Path | None], kind: str) -> Iterator[Mount]:
    """Mounts that show these paths at their own places, where the system's folders do not already."""
    for path in dict.fromkeys(paths):
        if path is not None and not is_seen(Path(os.path.realpath(path))):
            yield from _places(kind, path, path)
        elif path is not None and not is_seen(path):
            yield kind, os.path.realpath(path), str(path)


def is_seen(path: Path) -> bool:
    """Whether it lies in a folder of the system that every sandbox shows."""
    return len(path.parts) > 1 and path.parts[1] in SEEN


@functools.cache
def interpreter(python: Path, user_base: str = "") -> tuple[Path, ...]:
    """Folders that an interpreter needs: of itself, also where links lead from it, and all that it imports from.

    InfrastructureError where it does not run.
    """
    users = {"PYTHONNOUSERSITE": "", "PYTHONUSERBASE": user_base} if user_base else {}
    variables = clean_environment({"PYTHONDONTWRITEBYTECODE": "1", **users})
    try:
        done = subprocess.run(
            [str(python), "-c", _FOLDERS],
            capture_output=True,
            text=True,
            env=variables,
            timeout=PROBE_TIMEOUT_S,
            cwd="/",
        )
        told = [Path(name) for name in json.loads(done.stdout) if name]
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise InfrastructureError(f"{python} does not run as a Python: {error}", "") from None
    return tuple(path for path in dict.fromkeys([*told, *_links(python)]) if path.exists() and len(path.parts) > 2)


def _links(python: Path) -> Iterator[Path]:
    """The prefixes that an interpreter's name leads through, to its real one."""
    while True:
        yield python.parent.parent
        if not python.is_symlink():
            break
        python = Path(os.path.normpath(python.parent / os.readlink(python)))


@functools.cache
def compilers() -> tuple[Path, ...]:
    """Where compilers and libraries lie that this machine's variables name."""
    found = [Path(tool[0]) for tool in (host_compiler(), cuda_compiler()) if tool]
    prefixes = [place.parent.parent for path in found for place in (path, path.resolve())]
    named = [os.environ.get("CUDA_HOME", ""), *os.environ.get("LD_LIBRARY_PATH", "").split(":")]
    paths = [*prefixes, *(Path(name) for name in named if name.startswith("/"))]
    return tuple(path for path in dict.fromkeys(paths) if path.is_dir() and len(path.parts) > 2)


@functools.cache
def devices() -> tuple[Mount, ...]:
    return tuple(device_mounts()) if gpus() else ()
