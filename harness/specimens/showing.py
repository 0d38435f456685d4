"""What a specimen's run showed, and whether that is what its story says: one that shows nothing is none. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harness.schema.records import LaunchRecord, ValidationRecord
from harness.schema.run_records import RunRecord
from harness.schema.storage import Run
from harness.specimens.format import Specimen
from harness.worker import protocol

# Of several workloads the one that went worst speaks for an environment.
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
class Shown:
    """By environment, the baseline first: the worst validation's status, its message, and the kernel's median time."""

    environments: tuple[str, ...]
    statuses: tuple[str, ...]
    messages: tuple[str, ...]
    unsteady: bool
    medians_us: tuple[float | None, ...]

    @property
    def ratio(self) -> float | None:
        """The kernel's time in the last environment over that in the first."""
        first, last = self.medians_us[0], self.medians_us[-1]
        return last / first if first and last else None

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"ratio": self.ratio}


def shown(run: RunRecord, validations: Sequence[ValidationRecord], launches: Sequence[LaunchRecord]) -> Shown:
    worst = {
        name: max((v for v in validations if v.environment == name), key=lambda v: ORDER.index(v.status), default=None)
        for name in run.environments
    }
    kernels = [
        target for v in validations for r in v.recipes for target in r.targets if target.target == protocol.KERNEL
    ]
    return Shown(
        environments=tuple(run.environments),
        statuses=tuple(v.status if v else protocol.NOT_RUN for v in worst.values()),
        messages=tuple(v.message if v else "" for v in worst.values()),
        unsteady=any(target.repeats_differ for target in kernels),
        medians_us=tuple(_median_us(launches, name) for name in run.environments),
    )


def _median_us(launches: Sequence[LaunchRecord], environment: str) -> float | None:
    """The median over launches of their medians, over all workloads together."""
    medians = [
        sum(statistics.median(timing.samples_us) for timing in launch.timings
            if timing.target == protocol.KERNEL and timing.samples_us)
        for launch in launches
        if launch.environment == environment and launch.status == protocol.OK
    ]  # fmt: skip
    return statistics.median(medians) if any(medians) else None


def shown_by(run: Run) -> Shown:
    return shown(run.load(), run.validations(), run.launches())


def missing(specimen: Specimen, seen: Shown) -> list[str]:
    """What the specimen should have shown and did not."""
    said = []
    for name, status, allowed in zip(seen.environments, seen.statuses, specimen.shows.validation, strict=True):
        if status not in allowed:
            said.append(f"{name}: {status}, not {' or '.join(allowed)}")
    if specimen.shows.unsteady and not seen.unsteady:
        said.append("every run again gave the same bits")
    if specimen.shows.slower and (seen.ratio is None or seen.ratio < specimen.shows.slower):
        found = "no times" if seen.ratio is None else f"{seen.ratio:.2f} times"
        said.append(f"{found}, not {specimen.shows.slower:g} times slower")
    return said
