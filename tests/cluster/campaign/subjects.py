"""What is disturbed: a small matrix that is cut into shards, and its one command.

`real`: PyTorch in two virtual environments, on the CPU. `scripted`: a stand-in answers for PyTorch, on a GPU that
each node makes up; jobs, records and the page are as real.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.cluster.shards import Shard
from harness.schema.storage import Run
from harness.tools import cache_folder
from reports.load.evidence import load_evidence
from reports.render.report import Report
from reports.render.summaries import render_summary
from tests import projects
from tests.cluster.campaign.nodes import OFFSET, Nodes, said
from tests.conftest import ROOT
from tests.faults import scripted
from tests.faults.random_faults.faults import build_shim
from tests.faults.random_faults.subjects import MEASURED, _without, _without_numbers

MODES = ("real", "scripted")
REPORTS_MIB = 192
REAL, SCRIPTED = "real", "scripted"
KERNELS = {REAL: ("a", "b", "c", "d"), SCRIPTED: ("a", "b", "c", "d", "e", "f")}
LAUNCHES = {REAL: 2, SCRIPTED: 5}
ENVIRONMENTS = 2
LINE = "  - {{name: {name}, sources: {{{device}: [csrc/{name}.{ending}]}}{more}}}\n"
WORKLOAD = """\
workloads:
  - {{name: small, shape: {{batch: 1, heads: 1, seq_len: {length}, head_dim: 64}}, dtypes: {{{device}: [float32]}},
     trials: 2, extra_trials: 1}}
references: [math]
"""
PAGE = ("baseline", "environments", "cells", "not_bit_repeatable", "what_ran", "environment_differences", "failures")


@dataclass
class Subject:
    """A project below the folder that all nodes see. `typed`: what each command printed, and how it ended."""

    folder: Path
    mode: str
    cache: Path
    libraries: Path
    typed: list[tuple[int | None, str]] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.folder / "project"

    @property
    def device(self) -> str:
        return "cpu" if self.mode == REAL else "cuda"

    @property
    def launches(self) -> int:
        return len(KERNELS[self.mode]) * ENVIRONMENTS * LAUNCHES[self.mode]

    def make(self) -> Subject:
        head, more, ending = projects.head("2.1.0", "2.5.0"), "", "cpp"
        if self.mode == SCRIPTED:
            scripted.make_project(self.root)
            head, more, ending = scripted.MATRIX[: scripted.MATRIX.index("kernels:")], ", binding: own", "cu"
            head += f"launches: {LAUNCHES[SCRIPTED]}\nmost_launches: {LAUNCHES[SCRIPTED]}\n"
        source = (ROOT / "tests" / "candidates" / "small_attention.cpp").read_text()
        names = KERNELS[self.mode]
        lines = [LINE.format(name=name, device=self.device, ending=ending, more=more) for name in names]
        text = head + "kernels:\n" + "".join(lines) + WORKLOAD.format(device=self.device, length=65)
        files = {f"csrc/{name}.{ending}": source if self.mode == REAL else f"// {name}\n" for name in names}
        for name, held in {**files, "matrix.yaml": text}.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(held)
        self.cache.mkdir(parents=True, exist_ok=True)
        if self.mode == REAL and not (self.cache / "environments").exists():
            (self.cache / "environments").symlink_to(cache_folder() / "environments")
        return self

    def start(self, number: int, nodes: Nodes | None) -> subprocess.Popen[bytes]:
        """The command, on the nodes or on this host alone."""
        module = "harness" if self.mode == REAL else "tests.cluster.campaign.stand_in"
        words = [
            f"--matrix={self.root / 'matrix.yaml'}",
            "--executor=venv",
            "--explain=never",
            f"--device={self.device}",
            *(["--on=slurm"] if nodes else []),
        ]
        # A file of a node's own: elsewhere there is none, and the clock is right.
        clock = {"LD_PRELOAD": str(self.libraries / "clock.so"), "WALL_CLOCK_OFFSET": f"/tmp/{OFFSET}"}
        slurm = {"SLURM_CONF": str(nodes.conf)} if nodes else {}
        variables = {"KERNEL_MATRIX_CACHE": str(self.cache), **clock, **slurm}
        if self.mode == SCRIPTED:
            variables["LD_LIBRARY_PATH"] = str(self.libraries)
        with self.printed(number).open("wb") as file:
            return subprocess.Popen(
                [sys.executable, "-m", module, "matrix", *words],
                cwd=ROOT,
                stdout=file,
                stderr=file,
                env={**os.environ, **variables},
            )

    def printed(self, number: int) -> Path:
        return self.folder / f"printed-{number}.txt"

    # -- what stands there ---------------------------------------------------------------------------------

    @property
    def shards(self) -> list[Shard]:
        folders = [path.parent for path in self.root.glob("reports/shards/*/*/project")]
        return [Shard(kernel=each.name.rpartition("-")[0], device=self.device, folder=each) for each in sorted(folders)]  # type: ignore[arg-type]

    @property
    def latest(self) -> Run:
        return Run((self.root / "reports" / "latest").resolve(strict=True))

    def launch_records(self) -> list[Path]:
        return sorted(self.root.glob("reports/shards/*/*/project/reports/runs/*/launches/*/*/*.json"))

    def verdicts(self) -> Any:
        """What the page says of everything but times."""
        text = render_summary(Report(load_evidence(self.latest.folder))).replace(self.latest.folder.name, "RUN")
        page = json.loads(text)
        kept = {name: page[name] for name in PAGE}
        kept["cells"] = sorted(page["cells"], key=lambda cell: cell["id"])
        kept["correctness"] = page["counts"]["correctness"]
        kept["comparisons"] = [
            {"id": each["id"], "correctness": each["correctness"]}
            for each in sorted(page["comparisons"], key=lambda each: each["id"])
        ]
        return _without_numbers(_without(kept, MEASURED - {"cells"}))

    def outputs(self) -> dict[str, Any]:
        return {" ".join(key): value for key, value in projects.outputs(self.latest).items()}

    def counted(self) -> Counter[tuple[str, str, int]]:
        return Counter((each.environment, each.kernel, each.index) for each in self.latest.launches())

    def gpus_of_blocks(self) -> Iterator[tuple[str, int, set[str]]]:
        """(shard, block, GPUs that the launches saw which are recorded): the last to begin made the record."""
        for shard in self.shards:
            seen: dict[tuple[str, int], str] = {}
            ledger = shard.project / "launched.txt"
            kept = shard.run()
            for line in ledger.read_text().splitlines() if ledger.exists() and kept else []:
                run, gpu, environment, launch = line.split()
                if kept is None or run != kept.folder.name:
                    continue
                seen[environment, int(launch.rpartition("-")[2])] = gpu
            for index in sorted({index for _, index in seen}):
                yield shard.name, index, {gpu for (_, block), gpu in seen.items() if block == index}

    def mount(self) -> None:
        """A disk of its own for everything that is written in the project."""
        place = self.root / "reports"
        place.mkdir()
        said("mount", "-t", "tmpfs", "-o", f"size={REPORTS_MIB}m", "campaign-reports", str(place))

    def keep(self) -> None:
        """What is on that disk stays, for whoever looks why it failed."""
        shutil.copytree(self.root / "reports", self.folder / "kept", symlinks=True)

    def unmount(self) -> None:
        said("umount", "-l", str(self.root / "reports"), check=False)


def build_library(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    source = Path(__file__).with_name("nvml.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", source], check=True)
    build_shim(folder)
    return folder
