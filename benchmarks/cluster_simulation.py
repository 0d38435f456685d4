"""A matrix on a cluster, simulated event by event (simpy): what `benchmarks.cluster_costs` makes its tables of.

Shards wait for GPUs behind other users' jobs; nodes read and unpack environments; builds, validations and blocks of
launches take what they took in a recorded run; nodes and jobs fail, and a shard goes on where it stopped, as
`harness.workflow.shards` has it. `Plan` is what is asked for, with measured times (`benchmarks.cluster_figures`);
`Assumptions` were not measured, and the tables say what each is worth.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
import random
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import simpy

from benchmarks.cluster_figures import STORED_TRIALS, Figures, measured, recorded
from harness.cluster.slurm import PROCESSORS
from harness.workflow.shards import ATTEMPTS

HOUR = 3600.0
SBATCH_S = 0.1  # until a job is queued; assumed
SEALED_WHOLE_S = 0.002438  # of a shard and a kernel of the project: measured while that was so
Events = Generator[simpy.Event, Any, Any]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is run, on what, and how the harness goes about it."""

    gpus: int = 1000
    node_gpus: int = 8
    exclusive: bool = False  # a shard has its node to itself, as it was once
    processors: int = PROCESSORS  # of a shard
    versions: int = 50
    kernels: int = 2000
    others: int = 49  # versions in a shard beside the baseline
    blocks: int = 40  # `launches: 10` goes on to 40 while any row of a kernel is undecided: benchmarks/verdicts.md
    limit_s: float = 24 * HOUR
    longest_first: bool = False  # queued by the time that a run before took
    seal_s: float | None = None  # between two submissions; None: as measured, and sbatch
    sealed_whole: bool = False  # with the sources of all kernels, as it was once
    progress: bool = True  # a job that got further is no failed attempt
    builders: int = 0  # builds at once on CPU nodes, ahead of the shards; 0: each shard builds, and holds its GPU
    # Every kernel is like that of this recorded run: two shapes in two dtypes, three or four targets each.
    figures: Figures = field(default_factory=lambda: recorded("h200-own-kernel"), repr=False)

    @property
    def slots(self) -> int:
        """Shards at once."""
        return self.gpus // self.node_gpus if self.exclusive else self.gpus

    @property
    def groups(self) -> list[range]:
        """The other versions of each shard of a kernel; the baseline, 0, is in all."""
        return [range(first, min(first + self.others, self.versions)) for first in range(1, self.versions, self.others)]

    @property
    def between_s(self) -> float:
        if self.seal_s is not None:
            return self.seal_s
        sealed_s = SEALED_WHOLE_S * self.kernels if self.sealed_whole else measured("seal_ms_per_shard") / 1e3
        return SBATCH_S + sealed_s


@dataclass(frozen=True, kw_only=True)
class Assumptions:
    """Not measured: `benchmarks.cluster_costs.RANGES` has the least and the most that seem possible."""

    load: float = 0.5  # share of the GPUs that jobs of others want; they go first
    others_h: float = 4.0  # of one such job
    latency_s: float = 30.0  # from a free GPU to a job's first command
    file_system_gb_s: float = 20.0  # of all nodes
    node_gb_s: float = 1.0  # of one
    node_days: float = 150.0  # between two failures of a node
    repair_h: float = 4.0
    job_failures_per_h: float = 0.002  # of a shard alone: its GPU, its process, its files
    spread: float = 0.5  # of kernels: standard deviation of the logarithm of their times
    explained_s: float = 120.0  # experiments of a kernel
    narrower: float = 1.0  # starts, builds and validations on a shard's processors, times those recorded on sixteen
    # Environments are like those of docs/environments.md: a bundle's PyTorch 2.1.0 and 2.5.0, unpacked in 22.6 s.
    packed_gb: float = 0.527
    unpacked_gb: float = 4.45
    unpack_s: float = 10.4


@dataclass
class Result:
    wall_s: float = 0.0
    held_s: float = 0.0  # slots, from grant to return
    launches_s: float = 0.0  # in blocks that counted
    lost_s: float = 0.0  # parts of blocks, made again
    waited_s: list[float] = field(default_factory=list)  # in the queue, of each job
    shard_s: list[float] = field(default_factory=list)  # work of each, in one piece
    jobs: int = 0
    without_result: int = 0
    ends: dict[str, int] = field(default_factory=dict)  # of jobs: done, limit, failed, node
    submitted_s: float = 0.0  # the last
    unpacked_s: list[float] = field(default_factory=list)  # of each shard that unpacked any, with its wait for others
    read_gb: float = 0.0
    node_gb: float = 0.0  # the most on one


class Cluster:
    def __init__(self, plan: Plan, assumed: Assumptions, seed: int = 0) -> None:
        self.plan, self.assumed, self.figures = plan, assumed, plan.figures
        self.env, self.random, self.result = simpy.Environment(), random.Random(seed), Result()
        kernels, spread = random.Random(seed), assumed.spread  # the same ones, whatever else is simulated
        self.slower = [kernels.lognormvariate(-(spread**2) / 2, spread) for _ in range(plan.kernels)]
        if plan.longest_first:
            self.slower.sort(reverse=True)
        self.queue = simpy.PriorityResource(self.env, plan.slots)
        self.free = list(range(plan.slots))
        self.per_node = 1 if plan.exclusive else plan.node_gpus
        nodes = math.ceil(plan.slots / self.per_node)
        self.locks = [simpy.Resource(self.env) for _ in range(nodes)]  # the next to unpack on a node waits
        self.there = [0] * nodes  # environments that are unpacked
        self.running: list[dict[simpy.Process, None]] = [{} for _ in range(nodes)]
        self.streams = simpy.Resource(self.env, max(1, int(assumed.file_system_gb_s / assumed.node_gb_s)))
        self.builders = simpy.Resource(self.env, plan.builders) if plan.builders else None
        self.built: dict[int, simpy.Process] = {}

    def run(self) -> Result:
        plan = self.plan
        for _ in range(round(self.assumed.load * plan.slots)):
            self.env.process(self.other_job())
        if self.assumed.load:
            self.env.process(self.other_jobs())
        if math.isfinite(self.assumed.node_days):
            for node in range(len(self.locks)):
                self.env.process(self.failures(node))
        if self.builders:
            self.built = {kernel: self.env.process(self.build(kernel)) for kernel in range(plan.kernels)}
        done = self.env.process(self.submit())
        self.env.run(done)
        self.result.wall_s = self.env.now
        self.result.node_gb = max(self.there) * self.assumed.unpacked_gb
        return self.result

    def submit(self) -> Events:
        """Sealed and queued one after another, kernel by kernel."""
        shards = []
        for kernel in range(self.plan.kernels):
            for number, others in enumerate(self.plan.groups):
                yield self.env.timeout(self.plan.between_s)
                builds = len(others) + (number == 0)  # the baseline's is there by then
                shards.append(self.env.process(self.shard(kernel, [0, *others], builds)))
        self.result.submitted_s = self.env.now
        yield simpy.AllOf(self.env, shards)

    def other_job(self) -> Events:
        with self.queue.request(priority=0) as granted:
            yield granted
            place = heapq.heappop(self.free)
            yield self.env.timeout(self.random.expovariate(1 / (HOUR * self.assumed.others_h)))
            heapq.heappush(self.free, place)

    def other_jobs(self) -> Events:
        rate = self.assumed.load * self.plan.slots / (HOUR * self.assumed.others_h)
        while True:
            yield self.env.timeout(self.random.expovariate(rate))
            self.env.process(self.other_job())

    def failures(self, node: int) -> Events:
        while True:
            yield self.env.timeout(self.random.expovariate(1 / (24 * HOUR * self.assumed.node_days)))
            for shard in list(self.running[node]):
                shard.interrupt()

    def build(self, kernel: int) -> Events:
        """Once for an architecture, in all environments, in one after another of the CPU nodes' places."""
        assert self.builders is not None
        with self.builders.request() as granted:
            yield granted
            yield self.env.timeout(self.plan.versions * self.figures.build_s)

    def steps(self, environments: int, slower: float, builds: int) -> list[tuple[float, int]]:
        """Seconds, and validations or launches, of what is not made again once it is done; the blocks of launches are
        the last but one."""
        figures, narrower = self.figures, self.assumed.narrower
        made = [] if self.builders else [(narrower * figures.build_s / min(2, environments), 0)] * builds  # two at once
        judged = [(narrower * figures.validation_s * slower, figures.workloads)] * environments
        compared = (compare_s(figures, environments, self.plan.processors), 0)
        blocks = [(environments * figures.launch_s * slower, environments)] * self.plan.blocks
        return [*made, *judged, compared, *blocks, (self.assumed.explained_s, 0)]

    def shard(self, kernel: int, environments: list[int], builds: int) -> Events:
        if self.built:
            yield self.built[kernel]
        steps = self.steps(len(environments), self.slower[kernel], builds)
        self.result.shard_s.append(sum(seconds for seconds, _ in steps))
        done = had = attempts = 0
        while attempts < ATTEMPTS:
            attempts += 1
            end = "node"
            while end == "node":  # Slurm queues it again, which is no attempt
                end, done, records = yield from self.job(len(environments), steps, done)
                self.result.jobs += 1
                self.result.ends[end] = self.result.ends.get(end, 0) + 1
            if end == "done":
                self.result.launches_s += sum(seconds for seconds, _ in steps[-1 - self.plan.blocks : -1])
                return
            if self.plan.progress and records > had:
                attempts = 0
            had = records
        self.result.without_result += 1

    def job(self, environments: int, steps: list[tuple[float, int]], done: int) -> Events:
        """How it ended, how many steps are done, and how many validations and launches are recorded."""
        queued, shard = self.env.now, self.env.active_process
        assert shard is not None
        granted = self.queue.request(priority=1)
        yield granted
        self.result.waited_s.append(self.env.now - queued)
        place, began = heapq.heappop(self.free), self.env.now
        node = place // self.per_node
        self.running[node][shard] = None
        working, sums = math.inf, list(itertools.accumulate(seconds for seconds, _ in steps[done:]))
        try:
            yield self.env.timeout(self.assumed.latency_s)
            began_work = self.env.now
            yield from self.fetch(node)
            yield self.env.timeout(self.assumed.narrower * proven_s(self.figures, environments))
            working = self.env.now
            rate = self.assumed.job_failures_per_h / HOUR
            fails_s = self.random.expovariate(rate) if rate else math.inf
            limit_s = max(0.0, self.plan.limit_s - (self.env.now - began_work))
            end, lasts_s = min(("done", sums[-1]), ("failed", fails_s), ("limit", limit_s), key=lambda e: e[1])
            yield self.env.timeout(lasts_s)
        except simpy.Interrupt:
            end = "node"
        del self.running[node][shard]
        self.result.held_s += self.env.now - began
        spent = max(0.0, self.env.now - working)
        more = len(sums) if end == "done" else bisect.bisect_right(sums, spent)
        records = sum(count for _, count in steps[: done + more])
        if end != "done":
            part_s = spent - (sums[more - 1] if more else 0.0)
            seconds, count = steps[done + more]
            records += int(count * part_s / seconds)
            self.result.lost_s += part_s
        if end == "node":
            self.env.process(self.repair(granted, place))
        else:
            self.leave(granted, place)
        return end, done + more, records

    def leave(self, granted: simpy.resources.resource.Request, place: int) -> None:
        heapq.heappush(self.free, place)
        self.queue.release(granted)

    def repair(self, granted: simpy.resources.resource.Request, place: int) -> Events:
        """Nobody else gets its place meanwhile."""
        yield self.env.timeout(HOUR * self.assumed.repair_h)
        self.leave(granted, place)

    def fetch(self, node: int) -> Events:
        """What the node lacks of the bundle, which holds all environments: read from the shared file system and
        unpacked, by one shard for all that wait (`harness.isolate.bundle.once`)."""
        began = self.env.now
        with self.locks[node].request() as turn:
            yield turn
            missing = self.there[node] < self.plan.versions
            while self.there[node] < self.plan.versions:
                with self.streams.request() as stream:
                    yield stream
                    yield self.env.timeout(self.assumed.packed_gb / self.assumed.node_gb_s)
                self.result.read_gb += self.assumed.packed_gb
                yield self.env.timeout(self.assumed.unpack_s)
                self.there[node] += 1
        if missing:
            self.result.unpacked_s.append(self.env.now - began)


def proven_s(figures: Figures, environments: int) -> float:
    """Of each start of a shard, before it goes on: two environments at a time."""
    return figures.start_s + environments * figures.environment_s / min(2, environments)


def compare_s(figures: Figures, environments: int, cores: int) -> float:
    """Every output against every other: the only step that grows with the square of the environments."""
    work = sum(each.pairs(environments) * STORED_TRIALS * each.elements for each in figures.outputs)
    return work * measured("compare_ns_per_pair_and_element") / 1e9 / cores
