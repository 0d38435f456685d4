"""The plan: every environment, build, validation and launch of a run, decided before anything starts.

`plan_run` is a pure function of the matrix, what the user selected, and facts about this machine: the same
arguments give the same plan, and `Plan.digest`, the run's key, identifies it. A run with the same
digest is the same run, and is resumed instead of started anew.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, Literal

from harness.config.environments import Environment, threads_in
from harness.config.key_inputs import Place, World, key
from harness.config.matrix import Kernel, Limits, Matrix, Timing, Tolerances, Workload
from harness.errors import InputError
from harness.schema.records import Device
from harness.schema.run_records import Cell, Fallback, KernelBench, KernelInfo, Thresholds, WorkloadInfo
from harness.worker import protocol

QUICK_LAUNCHES = 5
MOST_LAUNCHES = 4  # times those planned, while rows stay undecided
QUICK_TRIALS = 2
QUICK_EXTRA_TRIALS = 1
QUICK_PROBLEM_TRIALS = 4  # one that is timed, and three that are new to the kernel: `worker.audit`
QUICK_TIMING = {"warmup_s": 0.02, "warmup_calls": 1, "target_s": 0.04, "min_samples": 3}


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What the user asked for on the command line; None means: what the matrix says."""

    mode: Literal["matrix", "eval"] = "matrix"
    torch: str | None = None
    kernels: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()
    launches: int | None = None
    trials: int | None = None
    quick: bool = False


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What was observed here before planning."""

    executor: str
    executor_reason: str
    indexes: Mapping[str, str] = field(default_factory=dict)  # Environment.id() to the wheel index in use
    index_reasons: Mapping[str, str] = field(default_factory=dict)  # why, where it is not the one asked for
    interpreters: Mapping[str, str] = field(default_factory=dict)  # '3.11' to what was found
    pins_sha256: Mapping[str, str] = field(default_factory=dict)  # planned environment id to digest
    sources_sha256: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Mapping[Device, Sequence[str]]] = field(default_factory=dict)  # a kernel's, of those
    binding_files: Sequence[str] = ()  # the shipped binding's, of those
    code: Mapping[str, str] = field(default_factory=dict)  # of the harness: `harness.config.code_digests`
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
    id: str
    spec: Environment
    index: str


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
    order_seed: int
    seed: int
    threads: int
    timing: Timing
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


def attention_flops(shape: Any, causal: bool) -> float:
    """Floating-point operations of the two matrix products: 4 B H S^2 D, and what the mask leaves of them."""
    pairs = shape.seq_len * (shape.seq_len + 1) / 2 if causal else shape.seq_len**2
    return float(4 * shape.batch * shape.heads * pairs * shape.head_dim)


def _workload_infos(workload: Workload, selection: Selection) -> list[WorkloadInfo]:
    trials, extra = workload.trials, workload.extra_trials
    if selection.quick:
        trials, extra = min(trials, QUICK_TRIALS), min(extra, QUICK_EXTRA_TRIALS)
    if selection.trials is not None:
        trials, extra = selection.trials, min(extra, selection.trials)
    recipes = {"independent": trials}
    if extra:
        recipes.update({recipe: extra for recipe in protocol.RECIPES if recipe != "independent"})
    dtypes = list(dict.fromkeys(workload.dtypes.cpu + workload.dtypes.cuda))
    devices: dict[str, list[Device]] = {
        dtype: [device for device in ("cpu", "cuda") if dtype in getattr(workload.dtypes, device)] for dtype in dtypes
    }
    shape = workload.shape
    return [
        WorkloadInfo(
            id=workload.id(dtype),
            name=workload.name,
            dtype=dtype,
            devices=devices[dtype],
            batch=shape.batch,
            heads=shape.heads,
            seq_len=shape.seq_len,
            head_dim=shape.head_dim,
            causal=workload.causal,
            scale=workload.scale or 1 / math.sqrt(shape.head_dim),
            trials=recipes,
            flops=attention_flops(shape, workload.causal),
            bytes=4.0 * shape.elements * (4 if dtype == "float32" else 2),
        )
        for dtype in dtypes
    ]


def _problem_info(kernel: Kernel, selection: Selection) -> WorkloadInfo:
    trials = selection.trials or (min(kernel.trials, QUICK_PROBLEM_TRIALS) if selection.quick else kernel.trials)
    assert kernel.problem is not None
    name = PurePosixPath(kernel.problem).stem
    return WorkloadInfo(
        id=f"{kernel.name}.{name}",
        name=name,
        dtype=kernel.dtype,
        devices=list(kernel.devices),
        trials={"independent": trials},
        problem=kernel.problem,
    )


def _pick(kind: str, wanted: Sequence[str], known: Sequence[str]) -> list[str]:
    for name in wanted:
        if name not in known:
            raise InputError(f"--{kind} {name}: not in matrix.yaml", f"choose from: {', '.join(known)}")
    return [name for name in known if not wanted or name in wanted]


def kernel_sources(kernel: Kernel, folder_files: Mapping[str, Sequence[str]]) -> dict[Device, list[str]]:
    """Device to source paths. `folder_files` lists the files of every kernel folder, relative to matrix.yaml."""
    if kernel.model_new is not None and kernel.problem is not None:
        return {device: [kernel.model_new, kernel.problem] for device in kernel.devices}
    sources: dict[Device, list[str]] = {}
    if kernel.folder is not None:
        files = sorted(folder_files.get(kernel.folder, ()))
        cuda = any(name.endswith(".cu") for name in files)
        host = [name for name in files if name.endswith((".cpp", ".cc", ".cxx"))]
        binds_itself = kernel.binding == "own"
        if cuda:
            sources["cuda"] = [name for name in files if name.endswith(".cu")] + (host if binds_itself else [])
        if host and not (cuda and binds_itself):
            sources["cpu"] = host
        if not sources:
            raise InputError(f"kernel {kernel.name}: no .cpp or .cu file in {kernel.folder}/", "check the folder")
    elif kernel.sources is not None:
        if kernel.sources.cpu:
            sources["cpu"] = list(kernel.sources.cpu)
        if kernel.sources.cuda:
            sources["cuda"] = list(kernel.sources.cuda)
    return sources


def plan_run(
    matrix: Matrix,
    selection: Selection,
    facts: Facts,
    folder_files: Mapping[str, Sequence[str]] | None = None,
    kernelbench: KernelBench | None = None,
) -> Plan:
    """The plan. InputError where the selection names what the matrix lacks, or leaves nothing to measure."""
    environments, fallbacks = [], []
    for spec in matrix.environments:
        index = facts.indexes.get(spec.id(), spec.wheel_index)
        environments.append(PlannedEnvironment(id=spec.id(index), spec=spec, index=index))
        if index != spec.wheel_index:
            fallbacks.append(
                Fallback(
                    subject=spec.id(index),
                    wanted=spec.wheel_index,
                    got=index,
                    reason=facts.index_reasons.get(spec.id(), "the index cannot be reached"),
                )
            )
    base = next(e for e in environments if matrix.is_baseline(e.spec))
    measured = [e.id for e in environments]
    if selection.torch is not None:
        chosen = [e for e in environments if selection.torch in (e.spec.torch, e.id)]
        if not chosen:
            known = ", ".join(sorted({e.spec.torch for e in environments}))
            raise InputError(f"torch {selection.torch}: not in matrix.yaml", f"choose from: {known}; or add it there")
        measured = [e.id for e in chosen]
        environments = [base] + [e for e in chosen if e is not base]

    devices: list[Device] = list(selection.devices) or (["cpu", "cuda"] if facts.gpus else ["cpu"])
    kernel_names = _pick("kernel", selection.kernels, [k.name for k in matrix.kernels])
    infos = [info for workload in matrix.workloads for info in _workload_infos(workload, selection)]
    problems = {k.name: _problem_info(k, selection) for k in matrix.kernels if k.problem}
    names = list(dict.fromkeys(name for info in [*infos, *problems.values()] for name in (info.name, info.id)))
    wanted = set(_pick("workload", selection.workloads, names))
    infos = [info for info in infos if wanted & {info.name, info.id}]
    kernels, builds, workloads = [], [], list(infos)
    for kernel in (k for k in matrix.kernels if k.name in kernel_names):
        sources = kernel_sources(kernel, folder_files or {})
        if kernel.problem is not None:
            own = [problems[kernel.name]] if wanted & {problems[kernel.name].name, problems[kernel.name].id} else []
            workloads += own
        else:
            own = [i for i in infos if kernel.workloads is None or i.name in kernel.workloads]
        if not own:
            continue
        kernels.append(
            KernelInfo(
                name=kernel.name,
                control_of=kernel.control_of,
                deterministic=kernel.deterministic,
                precision=None if kernel.precision is None else kernel.precision.names,
                devices=list(sources),
                sources=[p for paths in sources.values() for p in paths],
                tunables={k: str(v) for k, v in kernel.tunables.items()},
                references_cuda=list(matrix.references_cuda) if matrix.references_cuda and not kernel.problem else None,
                workloads=[i.id for i in own],
                references=["model"] if kernel.problem else list(matrix.references),
            )
        )
        for environment in measured:
            for device in sources:
                runnable = device in devices and (device == "cpu" or facts.gpus > 0)
                compiles = device == "cuda" and kernel.problem is None and not selection.quick
                if runnable or device in devices or compiles:
                    builds.append(
                        PlannedBuild(environment=environment, kernel=kernel.name, device=device, runnable=runnable)
                    )
    used = {i for k in kernels for i in k.workloads}
    workloads = [w for w in workloads if w.id in used]
    cells = [
        Cell(environment=e.id, kernel=k.name, workload=w.id, device=device)
        for e in environments
        for k in kernels
        for device in k.devices
        if device in devices
        for w in workloads
        if w.id in k.workloads and device in w.devices
    ]
    if not cells:
        raise InputError("nothing to measure: no cell is left", "see the matrix with --list, and select less narrowly")

    comparable = selection.mode == "matrix" and len(measured) > 1 and kernelbench is None
    launches_each = selection.launches or (min(matrix.launches, QUICK_LAUNCHES) if selection.quick else matrix.launches)
    runnable_keys = [
        (b.environment, b.kernel, b.device)
        for b in builds
        if b.runnable and any((c.environment, c.kernel, c.device) == (b.environment, b.kernel, b.device) for c in cells)
    ]
    most_launches = launches_each
    if comparable and not selection.quick and selection.launches is None:
        most_launches = matrix.most_launches or MOST_LAUNCHES * launches_each
    launches = interleave(runnable_keys, most_launches, matrix.seed)
    timing = matrix.timing.model_copy(update=QUICK_TIMING if selection.quick else {})
    plan = Plan(
        mode=selection.mode,
        quick=selection.quick,
        baseline=base.id,
        measured=tuple(measured),
        environments=tuple(environments),
        kernels=tuple(kernels),
        workloads=tuple(workloads),
        cells=tuple(cells),
        builds=tuple(builds),
        launches=tuple(launch for launch in launches if launch.index < launches_each),
        more_launches=tuple(launch for launch in launches if launch.index >= launches_each),
        launches_each=launches_each,
        most_launches=most_launches,
        order_seed=matrix.seed,
        seed=matrix.seed,
        threads=matrix.cpu_threads or facts.threads,
        timing=timing,
        tolerances=matrix.tolerances,
        thresholds=matrix.thresholds,
        limits=matrix.limits,
        fallbacks=tuple(fallbacks),
        facts=facts,
        kernelbench=kernelbench,
    )
    return replace(plan, digest=key(World(plan=plan, matrix=matrix), Place(kind="run")))


def interleave(keys: Sequence[tuple[str, str, Device]], each: int, seed: int) -> tuple[PlannedLaunch, ...]:
    """`each` blocks, and in each block every key once, in an order drawn from `seed`."""
    generator = random.Random(seed)
    launches: list[PlannedLaunch] = []
    for index in range(each):
        block = list(keys)
        generator.shuffle(block)
        for environment, kernel, device in block:
            launches.append(
                PlannedLaunch(
                    environment=environment, kernel=kernel, device=device, index=index, position=len(launches)
                )
            )
    return tuple(launches)
