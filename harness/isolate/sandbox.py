"""What a cell is like, in a container or in a bundle: who runs there, what lies where, and what is taken back."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

from harness.config import shipped
from harness.isolate import Task
from harness.isolate.venv import thread_variables

KEEPER, VERB = 10001, 10002  # user ids: docker/Dockerfile names them
ENVIRONMENT = Path("/opt/environment")
PYTHON = str(ENVIRONMENT / "bin" / "python")


def cell_places(task: Task, root: Path) -> tuple[dict[str, str], dict[str, Path]]:
    """Where paths of the request lie in the cell; what is taken back, by its name below /out there.

    `root` is the project's, which keeps its shape, as what is shipped does.
    """
    places = {str(root): "/in/project"}
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


def cell_variables(worker: str, threads: int) -> dict[str, str]:
    """The environment variables of a task, whose only folder is /out; `worker` is where `harness/worker` lies."""
    return {
        "PYTHONPATH": worker,
        "HOME": "/out",
        "TMPDIR": "/out",
        "USER": "verb",
        "LOGNAME": "verb",
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONNOUSERSITE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        **thread_variables(threads),
    }


def signalled(code: int | None) -> int:
    """An exit status as `subprocess` gives it: an engine, or a shell, says 128 + N of a process that died by signal N.

    None: it was killed, and nobody is left to say so.
    """
    if code is None:
        return -signal.SIGKILL
    return 128 - code if code - 128 in signal.valid_signals() else code


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
