"""Tasks of the worker in forks of a process that holds PyTorch already: importing it takes each fresh one seconds.

Whole runs start fresh ones, and what is timed or observed does here too (`verbs`).
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

SERVER = """
import json, os, runpy, sys, traceback
os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_WAIT_POLICY="passive")  # as the worker itself, before either is read
import numpy, torch
for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if not child:
        os.environ.update(asked["variables"])
        for number, path in enumerate((os.devnull, asked["printed"], asked["errors"])):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
        os.chdir(asked["scratch"])
        sys.path.insert(0, asked["folder"])
        sys.argv[1:] = asked["arguments"]
        code = 1
        try:
            if not asked["script"]:
                runpy.run_module("worker", run_name="__main__", alter_sys=True)  # which ends this process
            exec(asked["script"], {"__name__": "__main__"})
            code = 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(code)
    _, status = os.waitpid(child, 0)
    print(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status), flush=True)
"""


@functools.cache
def _server(python: Path) -> subprocess.Popen[str]:
    """It ends with this process, which holds the other end of its pipe."""
    return subprocess.Popen([python, "-c", SERVER], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def run_warm(
    python: Path, folder: Path, arguments: Sequence[str | Path], variables: Mapping[str, str] = {}, script: str = ""
) -> tuple[int, str, str]:
    """(exit code, or minus the signal that it died by; what it printed; standard error) of a task of the worker that
    `folder` holds, or of a script that can import it."""
    printed, errors = folder / "printed.log", folder / "errors.log"
    asked = {
        "folder": str(folder),
        "scratch": str(folder / "scratch"),
        "printed": str(printed),
        "errors": str(errors),
        "arguments": list(map(str, arguments)),
        "script": script,
        "variables": {**os.environ, "PYTHONPATH": str(folder), **variables},
    }
    (folder / "scratch").mkdir(exist_ok=True)
    server = _server(python)
    assert server.stdin is not None and server.stdout is not None
    print(json.dumps(asked), file=server.stdin, flush=True)
    return int(server.stdout.readline()), printed.read_text(), errors.read_text(errors="replace")
