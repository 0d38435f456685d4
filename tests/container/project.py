"""Whole runs in containers, as a user starts them, and what is left of them afterwards."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import docker

from harness.isolate.docker.engine import OWNER
from harness.schema.storage import Run
from tests.candidates.hostile import PROBLEM
from tests.conftest import ROOT
from tests.container.conftest import BASE
from tests.environments.test_run import command, head, make_project

DOCKER = ("--executor=docker", f"--base-image={BASE}")


def begin(
    project: Path, *arguments: str, verb: str = "matrix", variables: Mapping[str, str] = {}, log: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start a run; what it prints goes to `log`."""
    with contextlib.ExitStack() as stack:
        output = stack.enter_context((log or project / "printed").open("wb"))
        return subprocess.Popen(
            command(project, verb, *arguments), cwd=ROOT, env={**os.environ, **variables}, stdout=output,
            stderr=subprocess.STDOUT,
        )  # fmt: skip


def printed(project: Path) -> str:
    return (project / "printed").read_text(errors="replace")


def latest(project: Path) -> Run:
    return Run((project / "reports" / "latest").resolve())


def docker_run(project: Path, *arguments: str, variables: Mapping[str, str] = {}) -> tuple[int, str, Run, int]:
    """(exit code, what was printed, the run, the harness's process id) of a run in containers."""
    child = begin(project, *DOCKER, *arguments, variables=variables)
    code = child.wait()
    return code, printed(project), latest(project), child.pid


def containers_of(pid: int, address: str | None = None) -> list[str]:
    """Containers, also stopped ones, of a harness's process, on this machine's engine or another."""
    client = docker.DockerClient(base_url=address) if address else docker.DockerClient()
    with contextlib.closing(client):
        found = client.api.containers(all=True, filters={"label": OWNER})
        return [entry["Id"] for entry in found if f"/{pid}/" in entry["Labels"][OWNER]]


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
SMALL = (
    head("2.5.0")
    + "kernels:\n  - {name: right, problem: faults/problem.py, model_new: faults/right.py, devices: [cpu], trials: 2}\n"
)


def make_small_project(folder: Path) -> Path:
    project = make_project(folder, SMALL)
    (project / "faults").mkdir()
    (project / "faults" / "problem.py").write_text(PROBLEM)
    (project / "faults" / "right.py").write_text(KERNEL)
    return project


def launches(project: Path) -> dict[str, int]:
    """The launches on record, and when they were written."""
    found = (project / "reports" / "runs").glob("*/launches/*/*/*.json")
    return {str(path): path.stat().st_mtime_ns for path in found}


def now_in(project: Path, verb: str) -> bool:
    """Whether the kernel is running now, in a candidate's process or in a launch."""
    logs = (project / "reports" / "runs").glob(f"*/logs/*/{verb}-*.log")
    done = launches(project) if verb == "launch" else ()
    return sum("staying" in log.read_text(errors="replace") for log in logs) > len(done)
