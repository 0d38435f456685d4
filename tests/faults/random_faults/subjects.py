"""What is disturbed: a small project with a cache and a temporary folder of its own, and its one command."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from harness.cli import matrix as matrix_verb
from harness.errors import RecordError
from harness.run.pairwise import load_arrays
from harness.schema.storage import Run
from harness.tools import cache_folder
from reports.load.evidence import load_evidence
from reports.render.report import Report
from reports.render.summaries import render_summary
from tests import projects
from tests.faults import scripted
from tests.faults.scripted import OWN, ROOT, contents

PLAIN = (
    scripted.MATRIX[: scripted.MATRIX.index("  - {name: second")]
    + """\
references: [math]
launches: 2
most_launches: 2
"""
)
EXPLAINED = (
    PLAIN[: PLAIN.index("references:")]
    + scripted.MATRIX[scripted.MATRIX.index("  - {name: crashes") : scripted.MATRIX.index("references:")]
    + PLAIN[PLAIN.index("references:") :]
)
REAL = """\
kernels:
  - name: random_faults
    sources: {cpu: [csrc/attention_scalar_cpu.cpp]}
workloads:
  - name: small
    shape: {batch: 1, heads: 1, seq_len: 70, head_dim: 64}
    dtypes: {cpu: [float32]}
    trials: 2
    extra_trials: 1
"""
# What two undisturbed runs of real kernels have otherwise.
MEASURED = OWN | {
    "timings",
    "load",
    "overhead_s",
    "build_s",
    "binding_s",
    "build_ninja",
    "artifact_sha256",
    "objects",
    "image",
    "position",
    "log_excerpt",
    "latency",
    "hot_latency",
    "cells",
    "builds",
    "native",
    "key",
    "order_seed",
    "samples",
}


# Runs are forked from a process that has what a page needs, which takes seconds to import.
scripted._context.set_forkserver_preload(["tests.faults.scripted", "tests.faults.random_faults.preloaded"])


@dataclass
class Child:
    """A command that was started."""

    process: ForkServerProcess | subprocess.Popen[bytes]
    printed_to: Path

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def code(self) -> int | None:
        if isinstance(self.process, subprocess.Popen):
            return self.process.poll()
        return self.process.exitcode

    def wait(self, timeout_s: float) -> int | None:
        """Its exit code, negative for a signal; None where it did not end in time."""
        if isinstance(self.process, subprocess.Popen):
            try:
                return self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                return None
        self.process.join(timeout_s)
        return self.process.exitcode

    def kill(self) -> None:
        self.process.kill()
        self.wait(30)

    @property
    def printed(self) -> str:
        return self.printed_to.read_text(errors="replace") if self.printed_to.exists() else ""


@dataclass
class Subject:
    """A project, and what runs it. `wait_s`: how long its command may take, however busy the machine is."""

    folder: Path
    executor: str
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    wait_s: float = 120
    started: int = 0

    @property
    def root(self) -> Path:
        return self.folder / "project"

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    @property
    def runs(self) -> list[Path]:
        return sorted(path for path in (self.root / "reports" / "runs").glob("*") if path.is_dir())

    @property
    def latest(self) -> Run:
        return Run((self.root / "reports" / "latest").resolve(strict=True))

    def records(self) -> int:
        """How many validations, launches and crossings are written."""
        return len(scripted.identities(self.root / "reports" / "runs"))

    def copy(self, folder: Path, *, cached: bool = True) -> Subject:
        """Another project that stands where this one stands."""
        folder.mkdir(parents=True)
        shutil.copytree(self.root, folder / "project", symlinks=True)
        if cached:
            unsigned = shutil.ignore_patterns("*.holder")  # of the process that was killed to make what is copied
            shutil.copytree(self.cache, folder / "cache", symlinks=True, ignore=unsigned)
        return self.at(folder)

    def at(self, folder: Path) -> Subject:
        (folder / "tmp").mkdir(parents=True, exist_ok=True)
        return type(self)(folder, self.executor, self.arguments, self.variables, self.wait_s)

    def start(self, variables: Mapping[str, str] = {}, die: int = 0) -> Child:
        self.started += 1
        place = self.folder / f"printed-{self.started}.txt"
        words = [f"--matrix={self.root / 'matrix.yaml'}", *self.arguments]
        own = {"KERNEL_MATRIX_CACHE": str(self.cache), "TMPDIR": str(self.temporary), **self.variables, **variables}
        return self._start(words, own, place, die)

    def _start(self, words: list[str], variables: dict[str, str], place: Path, die: int) -> Child:
        with place.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "harness", "matrix", *words],
                cwd=ROOT,
                stdout=file,
                stderr=file,
                env={**os.environ, **variables},
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        return Child(process, place)

    def contents(self, run: Run) -> dict[str, Any]:
        """A run's records by their path, without what two undisturbed runs have otherwise; digests of no outputs,
        which are in the records."""
        found = contents(run)
        return {path: _without(value, MEASURED) for path, value in found.items() if not path.endswith(".npz")}

    def outputs(self, run: Run) -> dict[Path, dict[str, bytes] | None]:
        """Arrays that are stored beside records; None where a file cannot be read, which whoever reads it notices."""
        found: dict[Path, dict[str, bytes] | None] = {}
        for path in run.folder.rglob("*.npz"):
            try:
                found[path.relative_to(run.folder)] = {name: a.tobytes() for name, a in load_arrays(path).items()}
            except RecordError:
                found[path.relative_to(run.folder)] = None
        return found

    def page(self, run: Run) -> Any:
        """What the page says, as its summary.json."""
        return _without_numbers(_without(json.loads(self._summary(run)), MEASURED))

    def _summary(self, run: Run) -> str:
        text = render_summary(Report(load_evidence(run.folder)))
        return text.replace(run.folder.name, "RUN").replace(str(self.folder), "FOLDER")


class ScriptedSubject(Subject):
    """The real command; what a pinned Python would do is answered at once (`tests.faults.scripted`)."""

    def _start(self, words: list[str], variables: dict[str, str], place: Path, die: int) -> Child:
        variables[scripted.PROJECT] = str(self.root)
        if "LD_PRELOAD" in variables:  # of a process from its beginning
            with place.open("wb") as file:
                process = subprocess.Popen(
                    [sys.executable, "-m", "tests.faults.scripted", "matrix", "--executor=venv", *words],
                    cwd=ROOT,
                    stdout=file,
                    stderr=file,
                    env={**os.environ, **variables},
                )
            return Child(process, place)
        forked = scripted._context.Process(
            target=run_and_report, args=(["matrix", "--executor=venv", *words], variables, str(place), die)
        )
        forked.start()
        return Child(forked, place)

    def contents(self, run: Run) -> dict[str, Any]:
        return {path: value for path, value in contents(run).items() if not path.endswith(".npz")}

    def page(self, run: Run) -> Any:
        return _without(json.loads(self._summary(run)), OWN)


def run_and_report(words: list[str], variables: Mapping[str, str], printed: str, die: int) -> None:
    """A scripted run, in a process of its own, that writes its page."""
    report, patch = matrix_verb.report_run, scripted.patch

    def patch_all_but_the_page() -> None:
        patch()
        matrix_verb.report_run = report

    scripted.patch = patch_all_but_the_page
    scripted._process(words, variables, printed, die)


def _without(value: Any, names: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {name: _without(item, names) for name, item in value.items() if name not in names}
    if isinstance(value, list):
        return [_without(item, names) for item in value]
    if isinstance(value, str):
        times = r"\d+(\.\d+)? (us|µs|ms|s|min)\b|(?<=cannot be reached: ).*"  # the second: why not
        return re.sub(times, "SEEN", value) if names is MEASURED else value
    return value


def _without_numbers(value: Any) -> Any:
    """Fractions and shares are measured, counts are not; how busy the machine was is no matter of the run's."""
    if isinstance(value, dict):
        return {name: _without_numbers(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_numbers(item) for item in value if "the machine was busy" not in str(item)]
    if isinstance(value, str):
        return re.sub(r"\d+\.\d+|\d+%", "NUMBER", value)
    return "NUMBER" if isinstance(value, float) else value


def new_subject(folder: Path, executor: str, *, explained: bool = False) -> Subject:
    """A project in which nothing was run yet. `explained`: with experiments, of a kernel that crashes."""
    (folder / "tmp").mkdir(parents=True)
    if executor == "scripted":
        scripted.make_project(folder / "project")
        (folder / "project" / "matrix.yaml").write_text(EXPLAINED if explained else PLAIN)
        return ScriptedSubject(folder, executor, () if explained else ("--explain=never",))
    arguments = ["--quick", "--launches=1", "--explain=never", "--device=cpu", f"--executor={executor}"]
    versions = ("2.1.0", "2.5.0")
    if executor == "docker":
        versions = ("2.1.0",)
        arguments.append(f"--base-image={os.environ.get('HARNESS_TEST_BASE', 'kernel-matrix/base:bookworm-cuda12.4')}")
    projects.make_project(folder / "project", projects.head(*versions) + REAL)
    (folder / "cache").mkdir()
    environments = cache_folder() / "environments"
    proofs = cache_folder() / "images"
    if executor == "docker" and proofs.is_dir():
        shutil.copytree(proofs, folder / "cache" / "images")
    if executor == "venv" and environments.is_dir():
        (folder / "cache" / "environments").symlink_to(environments)
    return Subject(folder, executor, tuple(arguments), wait_s=400)
