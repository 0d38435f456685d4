"""The plan: every environment, build, validation and launch of a run, decided before anything starts.

`harness.config.planner` makes it. `Plan.digest`, the run's key, identifies it: a run with the same digest is the same
run, and is resumed instead of started anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from harness.config.environments import Environment, threads_in
from harness.config.matrix import Limits, TimingRules, Tolerances
from harness.schema.records import Device
from harness.schema.run_records import Cell, Fallback, KernelBench, KernelInfo, Thresholds, WorkloadInfo


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What was observed here before planning."""

    executor: str
    executor_reason: str
    sandboxed: bool = True  # whether every kernel runs in a sandbox
    indexes: Mapping[str, str] = field(default_factory=dict)  # Environment.id() to the wheel index in use
    index_reasons: Mapping[str, str] = field(default_factory=dict)  # why, where it is not the one asked for
    interpreters: Mapping[str, str] = field(default_factory=dict)  # '3.11' to what was found
    pins_sha256: Mapping[str, str] = field(default_factory=dict)  # planned environment id to digest
    sources_sha256: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Mapping[Device, Sequence[str]]] = field(default_factory=dict)  # a kernel's, of those
    binding_files: Sequence[str] = ()  # the shipped binding's, of those
    code: Mapping[str, str] = field(default_factory=dict)  # of the harness: `harness.config.keys.code_digests`
    host: Mapping[str, str] = field(default_factory=dict)
    cpu_flags: str = ""  # digest of the processor's features
    inherited: Mapping[str, str] = field(default_factory=dict)  # what processes get of the user's own environment
    gpu: Mapping[str, Any] = field(default_factory=dict)  # GpuFacts of the one in use, whatever names it
    threads: int = 1
    gpus: int = 0
    bases: Mapping[str, str] = field(default_factory=dict)  # base image to its digest, where cells are containers
    engine: Mapping[str, str] = field(default_factory=dict)  # what runs the containers
    bundle: Mapping[str, str] = field(default_factory=dict)  # RunRecord.bundle


@dataclass(frozen=True, kw_only=True)
class PlannedEnvironment:
    spec: Environment
    index: str

    @property
    def id(self) -> str:
        return self.spec.id(self.index)


@dataclass(frozen=True, kw_only=True)
class PlannedBuild:
    environment: str
    kernel: str
    device: Device
    runnable: bool


@dataclass(frozen=True, kw_only=True)
class PlannedLaunch:
    environment: str
    kernel: str
    device: Device
    index: int
    position: int
    rows: frozenset[tuple[str, str]] | None = None  # workload and target of those that it measures; None: all


@dataclass(frozen=True, kw_only=True)
class Plan:
    mode: Literal["matrix", "eval"]
    quick: bool
    baseline: str
    measured: tuple[str, ...]  # environments that are built, validated and timed in this run
    environments: tuple[PlannedEnvironment, ...]
    kernels: tuple[KernelInfo, ...]
    workloads: tuple[WorkloadInfo, ...]
    cells: tuple[Cell, ...]
    builds: tuple[PlannedBuild, ...]
    launches: tuple[PlannedLaunch, ...]
    more_launches: tuple[PlannedLaunch, ...]  # while rows stay undecided: `harness.run.extend`
    launches_each: int
    most_launches: int
    seed: int
    threads: int
    timing: TimingRules
    tolerances: Tolerances
    thresholds: Thresholds
    limits: Limits
    fallbacks: tuple[Fallback, ...]
    facts: Facts
    kernelbench: KernelBench | None = None
    digest: str = ""

    def environment(self, id: str) -> PlannedEnvironment:
        return next(environment for environment in self.environments if environment.id == id)

    def threads_in(self, environment: str) -> int:
        return threads_in(self.environment(environment).spec.variables, self.threads)

    @property
    def variables(self) -> dict[str, dict[str, str]]:
        """Of every environment, by its id."""
        return {environment.id: environment.spec.variables for environment in self.environments}

    def workload(self, id: str) -> WorkloadInfo:
        return next(workload for workload in self.workloads if workload.id == id)

    def kernel(self, name: str) -> KernelInfo:
        return next(kernel for kernel in self.kernels if kernel.name == name)

    def workloads_of(self, kernel: str, device: Device) -> list[WorkloadInfo]:
        wanted = set(self.kernel(kernel).workloads)
        return [w for w in self.workloads if w.id in wanted and device in w.devices]
