"""Small projects, and whole runs of them as a user starts them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import psutil

from harness.executors.choose import make_executor
from harness.progress import Display
from harness.run.context import Context
from harness.run.environments import prepare_and_build
from harness.run.folders import new_run
from harness.run.prepare import RunOptions, make_plan
from harness.schema.run_records import Selection
from harness.schema.storage import Run
from harness.tools import cache_folder
from tests.conftest import ROOT

HEAD = """\
schema_version: 1
baseline: "{baseline}"
environments:
{environments}
packages: [numpy==1.26.4, ninja==1.11.1.1, setuptools==69.5.1]
timing: {{warmup_s: 0.02, target_s: 0.03, min_samples: 3}}
launches: 2
most_launches: 2
"""
WORKLOADS = """\
workloads:
  - name: small
    shape: {batch: 1, heads: 2, seq_len: 70, head_dim: 64}
    dtypes: {cpu: [float32]}
    trials: 2
    extra_trials: 1
"""
KERNELS = """\
kernels:
  - name: attention_scalar
    sources: {cpu: [csrc/attention_scalar_cpu.cpp]}
    tunables: {BLOCK_M: 32, NUM_WARPS: 8, VEC_WIDTH: 4, SYNC_POLICY: 2, REDUCE: warp}
"""
SHIPPED = KERNELS + WORKLOADS
BROKEN_SOURCE = '#include "attention.h"\nint attention_forward(int) { return undeclared_name; }\n'


class Finished(NamedTuple):
    """A command's exit code, what it printed, and the run that `reports/latest` names afterwards."""

    code: int
    printed: str
    run: Run


def head(*versions: str) -> str:
    """The part of a matrix.yaml that names these PyTorch versions; the first is the baseline."""
    lines = [f'  - {{torch: "{version}", cuda: "12.1", python: "3.11"}}' for version in versions]
    return HEAD.format(baseline=versions[0], environments="\n".join(lines))


def solutions(names: Iterable[str]) -> str:
    """Kernels in KernelBench's form: faults/NAME.py, each for faults/problem.py."""
    line = "  - {{name: {0}, problem: faults/problem.py, model_new: faults/{0}.py, devices: [cpu], trials: 2}}\n"
    return "".join(map(line.format, names))


def make_project(folder: Path, matrix: str, files: Mapping[str, str] = {}) -> Path:
    """A folder with a matrix.yaml, the shipped scalar kernel and `files`."""
    (folder / "csrc").mkdir(parents=True)
    for path in (ROOT / "csrc").glob("attention_scalar*"):
        shutil.copy(path, folder / "csrc")
    for name, text in {"matrix.yaml": matrix, **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def copy_pins(project: Path) -> Path:
    """The project's own copy of the pin files, to be edited."""
    return Path(shutil.copytree(ROOT / "docker" / "pins", project / "docker" / "pins"))


def latest(project: Path) -> Run:
    return Run((project / "reports" / "latest").resolve())


def command(project: Path, verb: str, *arguments: str) -> list[str]:
    """Without experiments, which cost minutes of a project of faulty kernels, unless they are asked for."""
    silent = verb in ("matrix", "eval") and not any(word.startswith("--explain") for word in arguments)
    explain = ["--explain=never"] if silent else []
    explain += ["--no-report"] if verb in ("matrix", "eval") else []
    return [sys.executable, "-m", "harness", verb, f"--matrix={project / 'matrix.yaml'}", *explain, *arguments]


def attempt(words: list[str | Path], variables: Mapping[str, str] = {}) -> tuple[int, str]:
    """(exit code, what was printed) of a command that is started in the checkout."""
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, env={**os.environ, **variables})
    return done.returncode, done.stdout + done.stderr


def start(
    project: Path, verb: str, *arguments: str, executor: str = "venv", variables: Mapping[str, str] = {}
) -> Finished:
    code, printed = attempt(command(project, verb, f"--executor={executor}", *arguments), variables)
    return Finished(code, printed, latest(project))


def check_measured(run: Run, launches: int) -> None:
    """Every record of the CPU is ok, every target was timed, and the kernel was right in each of its launches."""
    builds = [build for build in run.builds() if build.device == "cpu"]
    records = [*run.environments(), *builds, *run.validations(), *run.launches()]
    assert {record.status for record in records} == {"ok"}, [record for record in records if record.status != "ok"]
    assert len(run.launches()) == launches
    for launch in run.launches():
        assert {timing.target for timing in launch.timings} == {"kernel", "flash", "math", "default", "control:flash"}
        assert all(timing.status == "ok" and min(timing.samples_us) > 0 for timing in launch.timings)
        assert all(timing.correct for timing in launch.timings if timing.target == "kernel")


def command_lines() -> dict[int, list[str]]:
    """The words of each process of this machine, by its id."""
    return {process.pid: process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])}


def report(run: Run, *arguments: str) -> tuple[int, str]:
    return attempt([sys.executable, "-m", "harness", "report", str(run.folder), *arguments])


def files(run: Run) -> dict[str, float]:
    """When each record of a run was written."""
    paths = (path for kind in ("launches", "validations", "builds") for path in (run.folder / kind).rglob("*.json"))
    return {str(path.relative_to(run.folder)): path.stat().st_mtime for path in paths}


def outputs(run: Run) -> dict[tuple[str, str, str], list[str]]:
    """Digests of every output, by environment, recipe and target."""
    return {
        (validation.environment, recipe.recipe, target.target): target.output_sha256
        for validation in run.validations()
        for recipe in validation.recipes
        for target in recipe.targets
    }


def built_context(project: Path) -> Context:
    """Environments prepared and kernels built, as experiments get them from a run."""
    options = RunOptions(matrix_path=project / "matrix.yaml", command=("test",), executor="venv")
    prepared = make_plan(options, Selection(), write_pins=True)
    cache = cache_folder()
    context = Context(
        root=options.root,
        cache=cache,
        matrix=prepared.matrix,
        plan=prepared.plan,
        run=new_run(options.root, prepared.plan.digest),
        executor=make_executor(prepared.choice, prepared.matrix.limits, prepared.plan, options.root, cache),
        sources=prepared.sources,
    )
    with Display(len(prepared.plan.builds)) as display:
        prepare_and_build(context, display)
    return context
