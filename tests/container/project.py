"""Whole runs in containers, as a user starts them, and what is left of them afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from harness.executors.engine import OWNER
from tests.candidates.hostile import PROBLEM
from tests.conftest import ROOT
from tests.container.conftest import BASE
from tests.projects import Finished, command, head, latest, make_project, solutions

DOCKER = ("--executor=docker", f"--base-image={BASE}")


def begin(project: Path, *arguments: str, variables: Mapping[str, str] = {}) -> subprocess.Popen[bytes]:
    """Start a matrix, in containers unless `arguments` name an executor; `printed` is what it prints."""
    own = () if any(word.startswith("--executor") for word in arguments) else DOCKER
    words = command(project, "matrix", *own, *arguments)
    with (project / "printed").open("wb") as output:
        return subprocess.Popen(
            words,
            cwd=ROOT,
            env={**os.environ, **variables},
            stdout=output,
            stderr=subprocess.STDOUT,
            # A shell's background job ignores Ctrl-C, and hands that on.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )


def printed(project: Path) -> str:
    return (project / "printed").read_text(errors="replace")


def docker_run(project: Path, *arguments: str, variables: Mapping[str, str] = {}) -> tuple[Finished, int]:
    """(what a run in containers gave, the harness's process id)."""
    child = begin(project, *arguments, variables=variables)
    code = child.wait()
    return Finished(code, printed(project), latest(project)), child.pid


def containers_of(pid: int, address: str | None = None) -> list[str]:
    """Containers, also stopped ones, of a harness's process, on this machine's engine or another."""
    host = [f"--host={address}"] if address else []
    words = ["ps", "--all", "--no-trunc", f"--filter=label={OWNER}", f'--format={{{{.ID}}}} {{{{.Label "{OWNER}"}}}}']
    listed = subprocess.run(["docker", *host, *words], check=True, capture_output=True, text=True).stdout
    return [line.split()[0] for line in listed.splitlines() if f"-{pid}-" in line]


# It stays a while in validation and in each launch, and says so, so that a test can come between.
KERNEL = """\
import sys, time
import torch
class ModelNew(torch.nn.Module):
    stayed = False
    def forward(self, x):
        if not ModelNew.stayed:
            ModelNew.stayed = True
            print("staying", flush=True)
            time.sleep(2)
        return torch.exp(x) * 1e-5
"""


def make_small_project(folder: Path) -> Path:
    files = {"faults/problem.py": PROBLEM, "faults/right.py": KERNEL}
    return make_project(folder, head("2.5.0") + "kernels:\n" + solutions(["right"]), files)


def launches(project: Path) -> dict[str, int]:
    """The launches on record, and when they were written."""
    found = (project / "reports" / "runs").glob("*/launches/*/*/*.json")
    return {str(path): path.stat().st_mtime_ns for path in found}


def now_in(project: Path, verb: str) -> bool:
    """Whether the kernel is running now, in a candidate's process or in a launch."""
    process = "host" if verb == "launch" else verb  # who measures is another
    logs = (project / "reports" / "runs").glob(f"*/logs/*/{process}-*.log")
    done = launches(project) if verb == "launch" else ()
    return sum("staying" in log.read_text(errors="replace") for log in logs) > len(done)
