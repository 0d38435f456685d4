"""Which times, and which peaks of memory, moved so far that it is worth to ask where they go: a pure function of a
run's launches.

This screens, with no interval and no false-discovery control: a target whose slowest launch in one environment is
faster than its fastest in the other, by more than the smallest effect that counts; or the same of memory. What moved,
`reports` judges.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from harness.schema.records import Device, LaunchRecord
from harness.schema.run_records import Cell, RunRecord
from harness.stats.medians import COLD, time_us
from harness.stats.peaks import counted
from harness.worker import protocol

FEWEST_LAUNCHES = 3  # of either side
MOST_PROFILES = 4  # targets of a device between two environments, those that moved most


@dataclass(frozen=True, kw_only=True)
class Profiled:
    """A target to profile in two environments, on the workload on which its time, or its peak memory, moved most."""

    kernel: str
    target: str
    workload: str
    device: Device
    environments: tuple[str, str]  # the baseline first
    ratio: float

    @property
    def size(self) -> float:
        """How far it moved, up or down."""
        return abs(math.log(self.ratio))

    @property
    def experiment(self) -> str:
        return f"profile-{self.target}"

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(
            Cell(environment=environment, kernel=self.kernel, workload=self.workload, device=self.device)
            for environment in self.environments
        )


Place = tuple[str, str, str, Device]  # kernel, target, workload, device
Values = dict[str, dict[Place, list[float]]]  # by environment: of each launch


def moved_targets(run: RunRecord, launches: Sequence[LaunchRecord]) -> list[Profiled]:
    """A reference once, whichever kernels it stands beside; a kernel by itself. In a quick run kernels alone."""
    times: Values = defaultdict(lambda: defaultdict(list))
    peaks: Values = defaultdict(lambda: defaultdict(list))
    for launch in launches:
        for timing in launch.timings:
            if timing.target.startswith(protocol.CONTROL):
                continue
            time = time_us(timing, COLD)
            place = launch.kernel, timing.target, timing.workload, launch.device
            if time is not None:
                times[launch.environment][place].append(time)
            if timing.memory is not None:
                peaks[launch.environment][place].append(counted(timing.memory.peak_bytes))
    largest: dict[tuple[str, str, str, Device], Profiled] = {}
    for environment in (each for each in run.environments if each != run.baseline):
        for place, this in times[environment].items():
            kernel, target, workload, device = place
            if run.quick and target != protocol.KERNEL:
                continue
            ratio = moved(times[run.baseline][place], this, run.thresholds.min_effect(device))
            if ratio is None:
                ratio = moved(peaks[run.baseline][place], peaks[environment][place], run.thresholds.memory)
            target = target.partition(protocol.BACKWARD)[0]  # a profile is of a whole step
            if ratio is not None:
                found = Profiled(
                    kernel=kernel,
                    target=target,
                    workload=workload,
                    device=device,
                    environments=(run.baseline, environment),
                    ratio=ratio,
                )
                own = {protocol.KERNEL: kernel, protocol.MODEL: workload}.get(target, "")
                key = (environment, own, target, device)
                largest[key] = max(largest.get(key, found), found, key=lambda each: each.size)
    return most(list(largest.values()))


def moved(base: Sequence[float], this: Sequence[float], min_effect: float) -> float | None:
    """The ratio of the medians, where no launch of one side lies among the other's, or within `min_effect` of them."""
    if min(len(base), len(this)) < FEWEST_LAUNCHES:
        return None
    apart = max(min(this) / max(base), min(base) / max(this))
    return statistics.median(this) / statistics.median(base) if apart > 1 + min_effect else None


def most(targets: Sequence[Profiled]) -> list[Profiled]:
    """Of each device and pair of environments those that moved most."""
    groups: dict[tuple[Device, tuple[str, str]], list[Profiled]] = defaultdict(list)
    for target in sorted(targets, key=lambda target: -target.size):
        groups[target.device, target.environments].append(target)
    return [target for group in groups.values() for target in group[:MOST_PROFILES]]
