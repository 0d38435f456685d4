"""What a case's run showed, and whether that is what it must show: a case that shows nothing tests nothing. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harness.schema.records import LaunchRecord
from harness.schema.storage import Run
from harness.worker import protocol
from tests.fault_cases.cases import FaultCase

# Of several workloads the one with the worst status stands for an environment.
ORDER = (
    "ok",
    "undecidable",
    "unsupported",
    "wrong",
    "killed",
    "timed_out",
    "crashed",
    "not_run",
    "build_failed",
    "broken",
)


@dataclass(frozen=True, kw_only=True)
class Observed:
    """By environment, the baseline first: the worst validation's status, its message, and the kernel's median time and
    peak memory."""

    environments: tuple[str, ...]
    statuses: tuple[str, ...]
    messages: tuple[str, ...]
    unsteady: bool
    medians_us: tuple[float | None, ...]
    peaks_bytes: tuple[float | None, ...]

    @property
    def ratio(self) -> float | None:
        """The kernel's time in the last environment over that in the first."""
        return _last_over_first(self.medians_us)

    @property
    def memory(self) -> float | None:
        """The same of its peak memory."""
        return _last_over_first(self.peaks_bytes)

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"ratio": self.ratio, "memory": self.memory}


def _last_over_first(values: Sequence[float | None]) -> float | None:
    first, last = values[0], values[-1]
    return last / first if first and last else None


def observed(run: Run, subject: str = protocol.KERNEL) -> Observed:
    environments, validations, launches = run.load().environments, run.validations(), run.launches()
    worst = {
        name: max((v for v in validations if v.environment == name), key=lambda v: ORDER.index(v.status), default=None)
        for name in environments
    }
    kernels = [target for v in validations for r in v.recipes for target in r.targets if target.target == subject]
    return Observed(
        environments=tuple(environments),
        statuses=tuple(v.status if v else protocol.NOT_RUN for v in worst.values()),
        messages=tuple(v.message if v else "" for v in worst.values()),
        unsteady=any(target.repeats_differ for target in kernels),
        medians_us=tuple(_median_us(launches, name, subject) for name in environments),
        peaks_bytes=tuple(_peak_bytes(launches, name, subject) for name in environments),
    )


def _median_us(launches: Sequence[LaunchRecord], environment: str, subject: str) -> float | None:
    """The median over launches of their medians, over all workloads together."""
    medians = [
        sum(
            statistics.median(timing.samples_us)
            for timing in launch.timings
            if timing.target == subject and timing.samples_us
        )
        for launch in launches
        if launch.environment == environment and launch.status == protocol.OK
    ]
    return statistics.median(medians) if any(medians) else None


def _peak_bytes(launches: Sequence[LaunchRecord], environment: str, subject: str) -> float | None:
    """The median over launches of their largest peaks."""
    peaks = [
        max(
            timing.memory.peak_bytes
            for timing in launch.timings
            if timing.target == subject and timing.memory is not None
        )
        for launch in launches
        if launch.environment == environment
        and any(timing.target == subject and timing.memory is not None for timing in launch.timings)
    ]
    return statistics.median(peaks) if peaks else None


def not_shown(case: FaultCase, seen: Observed) -> list[str]:
    """What the case should have shown and did not."""
    missing = []
    for name, status, allowed in zip(seen.environments, seen.statuses, case.shows, strict=True):
        if status not in allowed:
            missing.append(f"{name}: {status}, not {' or '.join(allowed)}")
    if case.unsteady and not seen.unsteady:
        missing.append("every run gave the same bits")
    if case.slower and (seen.ratio is None or seen.ratio < case.slower):
        ratio = "no times" if seen.ratio is None else f"{seen.ratio:.2f} times"
        missing.append(f"{ratio}, not {case.slower:g} times slower")
    if case.memory and (seen.memory is None or seen.memory < case.memory):
        ratio = "no memory measured" if seen.memory is None else f"{seen.memory:.2f} times"
        missing.append(f"{ratio}, not {case.memory:g} times the memory")
    return missing
