"""Shards: one kernel on one model of device, with all environments and all their launches, on one machine.

Environments may be compared only where they took turns on the same device, so a shard is never cut. Each shard is a
sealed folder: a project of its own, with matrix.yaml, the sources and pins as they were when it was planned. Its
command is `kernel-matrix matrix` there, which resumes what was interrupted; its records are those of that run.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.config import shipped
from harness.config.matrix import Matrix
from harness.config.planner import kernel_sources
from harness.errors import InputError
from harness.run.build import kernel_files
from harness.run.folders import runs_folder
from harness.run.prepare import folder_files
from harness.schema.records import Device
from harness.schema.storage import Run
from harness.worker import protocol

PINS = Path("docker", "pins")


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One kernel on one device."""

    kernel: str
    device: Device
    folder: Path
    gpu: str = ""  # what the name of its GPU must hold; '' where any will do, and on the CPU
    workloads: tuple[str, ...] = ()  # by name or id; none: all of the kernel's
    words: tuple[str, ...] = ()  # of its `kernel-matrix matrix`, beside what names these

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def log(self) -> Path:
        """Return where its jobs print, unless the queue keeps a file for each."""
        return self.folder / "job.log"

    @property
    def command(self) -> list[str]:
        """Return the command as a node runs it, with this Python."""
        matrix = ["--matrix", str(self.project / "matrix.yaml")]
        gpu = ["--gpu", self.gpu] if self.gpu else []
        workloads = [word for each in self.workloads for word in ("--workload", each)]
        own = [*matrix, "--kernel", self.kernel, "--device", self.device, *gpu, *workloads, *self.words, "--no-report"]
        return ["env", f"PYTHONPATH={shipped.ROOT}", sys.executable, "-m", "harness", "matrix", *own]

    def run(self) -> Run | None:
        """Return its finished run. What an experiment made for itself is not the shard's."""
        for path in sorted(runs_folder(self.project).glob("*/run.json"), reverse=True):
            record = Run(path.parent).load()
            if record.finished_utc and not record.derived:
                return Run(path.parent)
        return None

    def count_records(self) -> int:
        """Return how many records its run has that got furthest: on another machine it begins anew."""
        runs = runs_folder(self.project).glob("*")
        return max((sum(1 for _ in run.glob("*/**/*.json")) for run in runs), default=0)


def plan_shards(
    matrix: Matrix,
    root: Path,
    folder: Path,
    kernels: Sequence[str],
    devices: Sequence[Device],
    words: Sequence[str],
    gpus: Sequence[str] = (),
    workloads: Sequence[str] = (),
) -> list[Shard]:
    """Return a shard below `folder` for each of the chosen kernels (all where none is named), on each of these devices
    that it has sources for, and on each of these GPUs. InputError where none is left."""
    folders = folder_files(matrix, root)
    every = {kernel.name: set(kernel_sources(kernel, folders)) for kernel in matrix.kernels}
    every |= {name: {d for operator, *_ in group for d in operator.devices} for name, group in matrix.groups.items()}
    shards = [
        Shard(
            kernel=name,
            device=device,
            gpu=gpu,
            words=tuple(words),
            workloads=tuple(workloads),
            folder=folder / "-".join([name, device, *filter(None, [gpu])]),
        )
        for name, runs_on in every.items()
        if not kernels or name in kernels
        for device in devices
        if device in runs_on
        for gpu in ((gpus or [""]) if device == "cuda" else [""])
    ]
    if not shards:
        known = ", ".join(every)
        raise InputError(f"no kernel that was chosen is for {' or '.join(devices)}", f"the matrix has {known}")
    return shards


def files_of(matrix: Matrix, root: Path) -> list[str]:
    """Return the sources of every kernel with what they include, and pins: relative to `root`, or shipped below
    csrc/."""
    folders = folder_files(matrix, root)
    names = {str(path.relative_to(root)) for path in (root / PINS).glob("*") if path.is_file()}
    for kernel in matrix.kernels:
        sources = kernel_sources(kernel, folders)
        for device in sources:
            names.update(kernel_files(root, kernel, sources, device))
    names.update(operator.problem for operator in matrix.operators if operator.problem)
    return sorted(names)


def digest_of(matrix: Matrix, text: str, root: Path, asked: Sequence[str]) -> str:
    """Return a digest of all that shards are sealed with (`text`: their matrix.yaml): the same command on the same
    files goes on with the same shards, wherever they are queued."""
    files = [[name, protocol.sha256_file(str(shipped.located(root, name)))] for name in files_of(matrix, root)]
    return protocol.digest([text, files, list(asked)])


def seal(shard: Shard, matrix: Matrix, text: str, root: Path) -> None:
    """Lay out its project, unless that was done: matrix.yaml, pins, and the sources of its own kernel. What is shipped,
    and not the project's own, comes with the harness."""
    if shard.project.is_dir():
        return
    part = shard.folder / ".project.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    own = [kernel for kernel in matrix.kernels if kernel.name == shard.kernel]
    for name in files_of(matrix.model_copy(update={"kernels": own}), root):
        if (root / name).is_file():
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, part / name)
    for wheel in {environment.wheel for environment in matrix.environments if environment.wheel}:
        if not Path(wheel).expanduser().is_absolute():  # large, and pinned by its digest
            (part / wheel).parent.mkdir(parents=True, exist_ok=True)
            (part / wheel).symlink_to((root / wheel).resolve())
    (part / "matrix.yaml").write_text(text)
    part.rename(shard.project)
