"""Rows of a shard that gave no result: each of its cells says why, and where it was tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.cluster.shards import Shard
from harness.config.matrix import Matrix
from harness.config.planner import chosen
from harness.run.folders import now_utc
from harness.run.prepare import folder_files
from harness.schema.records import ValidationRecord
from harness.schema.run_records import Cell, KernelInfo, Selection, WorkloadInfo
from harness.worker import protocol

LAST_BYTES = 20_000  # of what a job printed


@dataclass(frozen=True, kw_only=True)
class Lost:
    matrix: Matrix
    shard: Shard
    why: str
    kernels: Sequence[KernelInfo]
    workloads: Sequence[WorkloadInfo]

    def rows(self, environments: Sequence[str]) -> list[tuple[Cell, ValidationRecord]]:
        """One for each of its cells in these environments."""
        cells = [
            Cell(environment=environment, kernel=kernel.name, workload=workload.id, device=self.shard.device)
            for environment in environments
            for kernel in self.kernels
            for workload in self.workloads
            if workload.id in kernel.workloads and self.shard.device in workload.devices
        ]
        rules, dtypes = self.matrix.tolerances, {workload.id: workload.dtype for workload in self.workloads}
        return [
            (cell, ValidationRecord(
                **cell.model_dump(), key="", status=protocol.NOT_RUN, message=self.why, started_utc=now_utc(),
                duration_s=0, decides=rules.decides, limits=rules.limits(dtypes[cell.workload]),
            ))
            for cell in cells
        ]  # fmt: skip


def lost(matrix: Matrix, root: Path, shard: Shard, selection: Selection, attempts: int, nodes: Sequence[str]) -> Lost:
    """`nodes`: where its jobs ended, by attempt; '' where that is not known."""
    own = selection.model_copy(update={"kernels": (shard.kernel,), "devices": (shard.device,)})
    kernels, workloads = chosen(matrix, own, folder_files(matrix, root))
    where = " and ".join(dict.fromkeys(node for node in nodes if node))
    times = "once" if attempts == 1 else f"{attempts} times"
    why = f"its job ended without a result, {times}{f', on {where}' if where else ''}"
    said = last_line(shard)
    return Lost(matrix=matrix, shard=shard, why=f"{why}: {said}" if said else why, kernels=kernels, workloads=workloads)


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
