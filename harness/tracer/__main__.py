"""`python -m tracer`: reads names of requests, a line each, and answers each with an exit code.

PyTorch is imported once; every request runs in a process of its own, forked before any operator ran. A request is a
file with an object: `task` ("run" or "replay"), `out` (a folder, where what is printed goes too)
and what that task takes; `result.json` is what it gives. Of a run: `kind` ("file" or "module"), `target`, `arguments`,
`eager`, `with` ("record" or "nothing"), and of the recorder `only`, `steps`, `store`, `programs`,
`guards` and `puts`.
"""

from __future__ import annotations

import json
import os
import sys

from . import record  # noqa: F401 - so that no request imports PyTorch again
from .replay import replay_all
from .script import run_script


def main() -> int:
    for line in iter(sys.stdin.readline, ""):
        process = os.fork()
        if not process:
            return work(line.strip())
        _, status = os.waitpid(process, 0)
        print(os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status), flush=True)
    return 0


def work(path: str) -> int:
    """One request, in a process of its own; its exit code."""
    with open(path, encoding="utf-8") as file:
        request = json.load(file)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as long as the process
    for number, name in ((1, "stdout.txt"), (2, "stderr.txt")):
        os.dup2(os.open(os.path.join(request["out"], name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
    if request["task"] == "run":
        return run_script(request)
    results = replay_all(request)
    with open(os.path.join(request["out"], "result.json"), "w", encoding="utf-8") as file:
        json.dump(results, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
