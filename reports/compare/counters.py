"""Hardware counters, as the page shows them: what each device function of a kernel kept busy, and what it waited for.
Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.schema.experiment_records import CountersRecord, FunctionCounters
from reports.load.evidence import Evidence

STALLS_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class Counted:
    """One device function of a kernel on a workload; without `function` the message says why there is none."""

    workload: str
    kernel: str
    environment: str
    record: str
    function: FunctionCounters | None = None
    message: str = ""

    @property
    def name(self) -> str:
        """The device function's, without result and parameters."""
        said = self.function.name if self.function is not None else ""
        return (said[: said.rindex("(")] if said.endswith(")") else said).removeprefix("void ")

    @property
    def conflicts_per_wavefront(self) -> float | None:
        """Of the passes that shared memory took, those that bank conflicts added; None where it was not used."""
        counted = self.function
        if counted is None or counted.bank_conflicts is None or not counted.shared_wavefronts:
            return None
        return counted.bank_conflicts / counted.shared_wavefronts

    @property
    def stalls(self) -> list[tuple[str, float]]:
        """The most frequent reasons to wait, with their share of all waiting warps."""
        found = self.function.stalls if self.function is not None else {}
        total = sum(found.values())
        ranked = sorted(found.items(), key=lambda item: -item[1])[:STALLS_SHOWN]
        return [(reason.replace("_", " "), value / total) for reason, value in ranked if total > 0]


def counted(evidence: Evidence) -> list[Counted]:
    """In the run's order of workloads, kernels and environments."""
    run = evidence.run
    order = [
        (environment, kernel.name, workload.id, "cuda")
        for workload in run.workloads
        for kernel in run.kernels
        for environment in run.environments
    ]
    return [row for key in order if key in evidence.counters for row in _rows(*evidence.counters[key])]


def _rows(record: CountersRecord, pointer: str) -> list[Counted]:
    row = Counted(workload=record.workload, kernel=record.kernel, environment=record.environment, record=pointer)
    if record.status != "ok":
        return [replace(row, message=f"{record.status.replace('_', ' ')}: {record.message}")]
    return [replace(row, function=function) for function in record.functions]
