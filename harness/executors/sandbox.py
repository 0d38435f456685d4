"""What a sandbox is like, in a container or under bubblewrap: who runs there, and what is taken back."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.config import shipped
from harness.errors import InfrastructureError
from harness.executors import Task
from harness.executors.process import Ended, run_child
from harness.schema.environment_records import Confinement

TASK_USER = 10002  # user id: docker/Dockerfile names it verb
ENVIRONMENT = Path("/opt/environment")
PYTHON = str(ENVIRONMENT / "bin" / "python")
LINK = "/link"  # where a task's link lies


def sandbox_paths(task: Task, root: Path) -> tuple[dict[str, str], dict[str, Path]]:
    """Return where paths of the request lie in the sandbox; what is taken back, by its name below /out there.

    `root` is the project's, which keeps its shape, as what is shipped does.
    """
    places = {str(root): "/in/project"} | ({str(task.terms.link): LINK} if task.terms.link else {})
    if not shipped.CSRC.is_relative_to(root):
        places[str(shipped.CSRC)] = "/in/shipped/csrc"
    outputs: dict[str, Path] = {}
    for number, path in enumerate(task.reads):
        if path.is_relative_to(shipped.CSRC):
            continue
        if not path.is_relative_to(root) or path.is_relative_to(root / "reports"):
            places[str(path)] = f"/in/{number}/{path.name}"
    for number, path in enumerate(task.writes):
        outputs[f"w{number}"] = path
        places[str(path)] = f"/out/w{number}"
    return places, outputs


USER = {"USER": "verb", "LOGNAME": "verb"}  # no system knows who runs a task; PyTorch 2.11's profiler asks for a name


def thread_variables(threads: int) -> dict[str, str]:
    return {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": "1",  # numpy computes the truth, a trial a thread
    }


def sandbox_variables(threads: int) -> dict[str, str]:
    """Return the environment variables of a task, whose only folder is /out."""
    return {
        "PYTHONPATH": "/in/worker",
        "HOME": "/out",
        "TMPDIR": "/out",
        **USER,
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONNOUSERSITE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        **thread_variables(threads),
    }


@dataclass(frozen=True, kw_only=True)
class SandboxLimits:
    """Of one sandbox in a container; of each process in one of bubblewrap."""

    memory_bytes: int
    processes: int
    output_bytes: int
    output_files: int


def unconfined(seen: Confinement | None, limits: SandboxLimits | None = None) -> str:
    """'' where a process was confined as it must be, else the first thing that it could do. Containers have `limits`
    and a filter of system calls; sandboxes of bubblewrap have neither as a whole."""
    if seen is None:
        return "it does not say how it is confined"
    faults = {
        f"it runs as user {seen.user_id}": seen.user_id != TASK_USER,
        "it may gain privileges": not seen.no_new_privileges,
        f"it has capabilities {seen.capabilities}": int(seen.capabilities or "1", 16) != 0,
        f"it has a network: {', '.join(seen.networks)}": bool(set(seen.networks) - {"lo"}),
        "it can write to its root file system": seen.root_writable,
    }
    if limits is not None:
        faults |= {
            "no seccomp filter is on": seen.seccomp != 2,
            "its memory is not limited": (seen.memory_bytes or limits.memory_bytes + 1) > limits.memory_bytes,
            "its processes are not limited": (seen.processes or limits.processes + 1) > limits.processes,
        }
    return next((fault for fault, holds in faults.items() if holds), "")


def bring_back(source: Path, target: Path) -> None:
    """Move what a task left to its place; into a folder that is there, file by file.

    Only plain files are moved. For anything else, such as a link, which is never followed, an empty file stands, so
    that it is no output and yet not nothing.
    """
    if source.is_symlink() or (os.path.lexists(source) and not (source.is_file() or source.is_dir())):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"")
    elif source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(source, target)
    elif source.is_dir():
        for path in sorted(source.iterdir()):
            bring_back(path, target / path.name)


def run_task(task: Task, command: Sequence[str], variables: Mapping[str, str]) -> Ended:
    """Run a task's process in its scratch folder, on its terms."""
    terms = task.terms
    return run_child(
        command,
        cwd=task.scratch,
        log=task.log,
        timeout_s=terms.timeout_s,
        environment=variables,
        gate=terms.gate,
        until=terms.until,
    )


# -- whose files they are -------------------------------------------------------------------------------------------


def hand_over(folders: Iterable[Path], user: int = TASK_USER) -> None:
    """Make folders, and all in them, a user's; links are not followed."""
    for folder in folders:
        for path in (folder, *folder.rglob("*")):
            os.lchown(path, user, user)


def take_back(folders: Sequence[Path]) -> None:
    """Make what a task left ours again, whatever modes it gave its folders."""
    if os.geteuid() == 0:
        hand_over(folders, 0)
    for folder in folders:
        folder.chmod(0o755)
        for place, names, _ in os.walk(folder):
            for name in names:
                path = Path(place, name)
                if not path.is_symlink():
                    path.chmod(path.stat().st_mode | stat.S_IRWXU)  # before it is looked into


def refuse_closed(paths: Iterable[Path]) -> None:
    """InfrastructureError where another user could not read one of these."""
    for path in paths:
        closed = next((part for part in (path, *path.rglob("*")) if not is_open(part)), None)
        if closed is not None:
            raise InfrastructureError(
                f"{closed}: sandboxes run as another user, who cannot read it", f"chmod -R o+rX {path}"
            )


def is_open(path: Path) -> bool:
    """Return whether everybody may read a file, or list a folder."""
    status = path.lstat()
    needed = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(status.st_mode) else 0)
    return stat.S_ISLNK(status.st_mode) or status.st_mode & needed == needed
