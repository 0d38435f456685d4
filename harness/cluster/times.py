"""How long shards take, by the newest run, and which are cut by workload for it. Pure, but for reading that run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from statistics import mean

from harness.cluster.shards import Shard
from harness.run.folders import all_runs
from harness.schema.records import Device, LaunchRecord, ValidationRecord
from harness.worker import protocol

LONGEST_S = 1800.0  # of a shard, unless the user set a limit of time
ROOM = 0.8  # of that limit: the rest is for builds, and for what takes longer than before


@dataclass
class Spent:
    """Seconds of a kernel on a device: `blocks` by number, all that is launched in turns; `start_s`: of all launches,
    the time in which nothing is measured, which each part of the workloads takes again; `workloads` by id, the rest of
    the launches and the validations."""

    blocks: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    start_s: float = 0.0
    workloads: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def expected_s(self, workloads: Collection[str] = ()) -> float:
        """Of these workloads, by name or id; of all where none is named. One that never ran counts as their mean."""
        named = [name for name in self.workloads if not workloads or {name, _name(name)} & set(workloads)]
        known = {*named, *map(_name, named)}
        new = sum(name not in known for name in workloads)
        return self.start_s + sum(self.workloads[name] for name in named) + new * self._mean_s

    @property
    def _mean_s(self) -> float:
        return mean(self.workloads.values()) if self.workloads else 0.0

    def longest_block_s(self, workloads: Collection[str] = ()) -> float:
        whole = self.expected_s()
        return max(self.blocks.values(), default=0.0) * (self.expected_s(workloads) / whole if whole else 1.0)


def _name(workload: str) -> str:
    """A workload's name, of its id at a dtype."""
    return protocol.forward_of(workload).rpartition("-")[0]


def spent_on(
    launches: Iterable[LaunchRecord], validations: Iterable[ValidationRecord]
) -> dict[tuple[str, Device], Spent]:
    """By kernel and device."""
    found = defaultdict[tuple[str, Device], Spent](Spent)
    starts = defaultdict[tuple[str, Device], dict[tuple[str, int], float]](dict)
    for each in launches:
        spent = found[each.kernel, each.device]
        spent.blocks[each.index] += each.duration_s
        weights = defaultdict[str, float](float)
        for timing in each.timings:
            hot_us = sum(timing.hot_us) * timing.hot_calls_per_sample
            weights[timing.workload] += sum(timing.samples_us) * timing.calls_per_sample + hot_us
        whole = sum(weights.values())
        sampled_s = each.duration_s if each.sampling_s is None else min(each.sampling_s, each.duration_s)
        measured_s = sampled_s if whole else 0.0
        own, launch = starts[each.kernel, each.device], (each.environment, each.index)
        own[launch] = max(own.get(launch, 0.0), each.duration_s - measured_s)  # each part of the workloads has it
        for name, weight in weights.items():
            spent.workloads[name] += measured_s * weight / whole if whole else 0.0
    for row in validations:
        if (row.kernel, row.device) in found:
            found[row.kernel, row.device].workloads[row.workload] += row.duration_s or 0.0
    for key, parts in starts.items():
        found[key].start_s = sum(parts.values())
    return dict(found)


def spent_before(root: Path, shards: Sequence[Shard]) -> dict[tuple[str, Device], Spent]:
    """Of each shard's kernel and device, in the newest run that has launches of it. Runs are read once, and no further
    back than is needed."""
    missing = {(shard.kernel, shard.device) for shard in shards}
    found: dict[tuple[str, Device], Spent] = {}
    for run in all_runs(root):
        if not missing:
            break
        launches = [each for each in run.launches() if (each.kernel, each.device) in missing]
        found |= spent_on(launches, run.validations() if launches else ())
        missing -= found.keys()
    return found


def cut(shard: Shard, workloads: Sequence[str], spent: Spent, limit_s: float) -> list[Shard]:
    """The shard, or several of it by workload where it is expected to take longer than this. `workloads`: the ids of
    all of its own. What is compared stays together: each part holds all environments, and all their launches of it."""
    if len(workloads) < 2 or spent.expected_s(workloads) <= limit_s:
        return [shard]
    left_s = spent.expected_s(workloads) - spent.start_s
    count = min(len(workloads), ceil(left_s / max(limit_s - spent.start_s, 1.0)))
    while True:
        parts: list[list[str]] = [[] for _ in range(count)]
        for name in sorted(workloads, key=lambda name: -spent.expected_s([name])):  # the longest first
            min(parts, key=lambda part: (spent.expected_s(part) if part else 0.0, len(part))).append(name)
        if count == len(workloads) or max(map(spent.expected_s, parts)) <= limit_s:
            in_order = [sorted(part, key=workloads.index) for part in parts]
            return shard.cut(sorted(in_order, key=lambda part: workloads.index(part[0])))
        count += 1
