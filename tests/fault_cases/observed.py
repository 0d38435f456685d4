"""What a case's run showed, and whether that is what it must show: a case that shows nothing tests nothing. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harness.schema.records import LaunchRecord
from harness.schema.storage import Run
from harness.worker import protocol
from harness.worker.wire import TargetTiming
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
        medians_us=tuple(_median(launches, name, subject, _time_us) for name in environments),
        peaks_bytes=tuple(_median(launches, name, subject, _peak_bytes) for name in environments),
    )


def _time_us(timings: Sequence[TargetTiming]) -> float | None:
    """Return the sum of the medians of all workloads."""
    return sum(statistics.median(timing.samples_us) for timing in timings if timing.samples_us) or None


def _peak_bytes(timings: Sequence[TargetTiming]) -> float | None:
    """Return the largest peak."""
    return max((timing.memory.peak_bytes for timing in timings if timing.memory is not None), default=None)


def _median(
    launches: Sequence[LaunchRecord],
    environment: str,
    subject: str,
    measure: Callable[[Sequence[TargetTiming]], float | None],
) -> float | None:
    """Return the median of a measure over launches; None where none has it."""
    own = [each for each in launches if each.environment == environment and each.status == protocol.OK]
    measured = [measure([timing for timing in each.timings if timing.target == subject]) for each in own]
    values = [value for value in measured if value is not None]
    return statistics.median(values) if values else None


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
