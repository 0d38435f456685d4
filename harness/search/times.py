"""Times of replicates, and the ratio of two of them in the same rounds: what bisect and sweep compare. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from harness.schema.records import LaunchRecord
from harness.stats.effects import Estimate, compare_launches
from harness.stats.medians import COLD, time_us


class Place(NamedTuple):
    """Where a time belongs; `mode`: single calls, or replays of a CUDA graph."""

    environment: str
    kernel: str
    workload: str
    device: str
    mode: str


Rounds = Mapping[int, float]  # the median of each replicate in microseconds, by its round


def read_medians(launches: Iterable[LaunchRecord], target: str, modes: Sequence[str] = (COLD,)) -> dict[Place, Rounds]:
    """Return the median of each replicate of a target, by place and round."""
    found: dict[Place, dict[int, float]] = {}
    for launch in launches:
        for timing in launch.timings:
            for mode in modes if timing.target == target else ():
                place = Place(launch.environment, launch.kernel, timing.workload, launch.device, mode)
                time = time_us(timing, mode)
                if time is not None:
                    found.setdefault(place, {})[launch.index] = time
    return dict(found)


def compare_rounds(base: Rounds, this: Rounds, confidence: float) -> Estimate | None:
    """Estimate the ratio of two times from the rounds that both are in; None where there is none."""
    shared = sorted(base.keys() & this.keys())
    if not shared:
        return None
    pair = [base[index] for index in shared], [this[index] for index in shared]
    return compare_launches([pair], confidence)[0]
