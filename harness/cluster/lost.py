"""Rows of a shard that gave no result: each of its cells says why, and where it was tried."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.cluster.shards import Shard
from harness.config.matrix import Matrix, parse_matrix
from harness.config.planner import chosen
from harness.run.prepare import folder_files
from harness.run.validate import row_without_result
from harness.schema.records import ValidationRecord
from harness.schema.run_records import Cell, KernelInfo, Selection, WorkloadInfo

LAST_BYTES = 20_000  # of what a job printed


@dataclass(frozen=True, kw_only=True)
class Lost:
    """`matrix`, `kernels` and `workloads`: of what the shard was sealed with."""

    shard: Shard
    why: str
    matrix: Matrix
    kernels: Sequence[KernelInfo]
    workloads: Sequence[WorkloadInfo]

    def rows(self, environments: Sequence[str]) -> list[tuple[Cell, ValidationRecord]]:
        """One for each of its cells in these environments."""
        found = []
        for environment, kernel, workload in itertools.product(environments, self.kernels, self.workloads):
            if workload.id in kernel.workloads and self.shard.device in workload.devices:
                cell = Cell(environment=environment, kernel=kernel.name, workload=workload.id, device=self.shard.device)
                found.append((cell, row_without_result(cell, kernel, workload, self.matrix.tolerances, self.why)))
        return found


def lost(shard: Shard, selection: Selection, why: str) -> Lost:
    """`why` it has no result, or none yet."""
    own = replace(selection, kernels=(shard.kernel,), devices=(shard.device,), workloads=shard.workloads)
    matrix = _sealed((shard.project / "matrix.yaml").read_text())
    kernels, workloads = chosen(matrix, own, folder_files(matrix, shard.project))
    return Lost(shard=shard, why=why, matrix=matrix, kernels=kernels, workloads=workloads)


@functools.lru_cache(maxsize=1)
def _sealed(text: str) -> Matrix:
    """Of all shards of a command it is the same."""
    return parse_matrix(text)


def given_up(shard: Shard, attempts: int) -> str:
    """Return why a shard has no result, and the last that its jobs said."""
    times = "once" if attempts == 1 else f"{attempts} times"
    why = f"its job ended without a result, {times}"
    said = last_line(shard)
    return f"{why}: {said}" if said else why


def last_line(shard: Shard) -> str:
    """The last error that its last job printed; what it printed last, where it printed none."""
    logs = [shard.log, *(shard.folder / "slurm").glob("*.out")]
    newest = max((log for log in logs if log.is_file()), key=lambda log: log.stat().st_mtime, default=None)
    if newest is None:
        return ""
    printed = newest.read_bytes()[-LAST_BYTES:].decode("utf-8", "replace")
    lines = [line.strip()[:300] for line in reversed(printed.splitlines()) if line.strip()]
    marks = ("cannot go on: ", "error: ")
    found = (line.partition(mark)[2] for line in lines for mark in marks if mark in line)
    return next(found, lines[0] if lines else "")
