"""Planning: a pure function of the matrix, what the user selected, and facts about this machine."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import PurePosixPath

from harness.config.kernels import Kernel
from harness.config.keys import plan_digest
from harness.config.matrix import Matrix
from harness.config.operators import PYTORCH, OperatorWorkload
from harness.config.plan import Facts, Plan, PlannedBuild, PlannedEnvironment, PlannedLaunch
from harness.config.workloads import Shape, Workload
from harness.errors import InputError, refuse_unknown
from harness.schema.records import DEVICES, Device
from harness.schema.run_records import Cell, Fallback, KernelBench, KernelInfo, Selection, Thresholds, WorkloadInfo
from harness.worker import protocol

QUICK_LAUNCHES, QUICK_EFFECT = 3, 0.3  # what so few can tell: what is slower by this much, or is not
MOST_LAUNCHES = 4  # times those planned, while rows stay undecided
QUICK_TRIALS = 2
QUICK_EXTRA_TRIALS = 1
QUICK_PROBLEM_TRIALS = 4
WITH_GRADIENTS = 3.5  # forward has two products of matrices, and backward five of the same size
QUICK_TIMING = {"warmup_s": 0.02, "warmup_calls": 1, "target_s": 0.1, "min_samples": 3}
INDEPENDENT = "independent"  # the input distribution that every workload has
FolderFiles = Mapping[str, Sequence[str]]  # the files of every kernel folder, relative to matrix.yaml


def plan_run(
    matrix: Matrix,
    selection: Selection,
    facts: Facts,
    folder_files: FolderFiles | None = None,
    kernelbench: KernelBench | None = None,
) -> Plan:
    """Return the plan. InputError where the selection names what the matrix lacks, or leaves nothing to measure."""
    base, measured, environments = _plan_environments(matrix, selection, facts)
    devices: list[Device] = list(selection.devices) or (["cpu", "cuda"] if facts.gpus else ["cpu"])
    kernels, workloads = chosen(matrix, selection, folder_files or {})
    cells = _plan_cells(environments, kernels, workloads, devices)
    builds = _plan_builds(matrix, selection, facts, kernels, measured, devices)
    is_comparison = selection.mode == "matrix" and len(measured) > 1 and kernelbench is None
    launches_each, most_launches = _count_launches(matrix, selection, is_comparison=is_comparison)
    timed = {(cell.environment, cell.kernel, cell.device) for cell in cells}
    runnable = [(each.environment, each.kernel, each.device) for each in builds if each.runnable]
    launches = interleave([each for each in runnable if each in timed], most_launches, matrix.seed)
    plan = Plan(
        mode=selection.mode,
        quick=selection.quick,
        baseline=base.id,
        measured=tuple(each.id for each in measured),
        environments=tuple(environments),
        kernels=tuple(kernels),
        workloads=tuple(workloads),
        cells=tuple(cells),
        builds=tuple(builds),
        launches=tuple(launch for launch in launches if launch.index < launches_each),
        more_launches=tuple(launch for launch in launches if launch.index >= launches_each),
        launches_each=launches_each,
        most_launches=most_launches,
        seed=matrix.seed,
        threads=matrix.cpu_threads or facts.threads,
        timing=matrix.timing.model_copy(update=QUICK_TIMING) if selection.quick else matrix.timing,
        tolerances=matrix.tolerances,
        thresholds=quick_thresholds(matrix.thresholds) if selection.quick else matrix.thresholds,
        limits=matrix.limits,
        fallbacks=_list_fallbacks(matrix, facts),
        facts=facts,
        kernelbench=kernelbench,
    )
    return with_digest(plan, matrix)


def with_digest(plan: Plan, matrix: Matrix) -> Plan:
    """Return the plan with the digest of all that its records depend on, as far as its facts say it."""
    return replace(plan, digest=plan_digest(plan, matrix))


# -- environments, builds, launches -----------------------------------------------------------------------------


def _plan_environments(
    matrix: Matrix, selection: Selection, facts: Facts
) -> tuple[PlannedEnvironment, list[PlannedEnvironment], list[PlannedEnvironment]]:
    """Return the baseline, the environments that are measured, and all that the plan has."""
    every = {
        spec.id(): PlannedEnvironment(spec=spec, index=facts.indexes.get(spec.id(), spec.wheel_index))
        for spec in matrix.environments
    }
    base, planned = every[matrix.baseline_environment.id()], list(every.values())
    if selection.torch is None:
        return base, planned, planned
    measured = [each for each in planned if selection.torch in (each.spec.torch, each.id)]
    if not measured:
        refuse_unknown("torch", [selection.torch], sorted({each.spec.torch for each in planned}))
    return base, measured, [base, *(each for each in measured if each is not base)]


def _plan_cells(
    environments: Sequence[PlannedEnvironment],
    kernels: Sequence[KernelInfo],
    workloads: Sequence[WorkloadInfo],
    devices: Sequence[Device],
) -> list[Cell]:
    cells = [
        Cell(environment=environment.id, kernel=kernel.name, workload=workload.id, device=device)
        for environment in environments
        for kernel in kernels
        for device in kernel.devices
        if device in devices
        for workload in workloads
        if workload.id in kernel.workloads and device in workload.devices
    ]
    if not cells:
        raise _nothing_left(kernels, devices)
    return cells


def _list_fallbacks(matrix: Matrix, facts: Facts) -> tuple[Fallback, ...]:
    return tuple(
        Fallback(
            subject=spec.id(index),
            wanted=spec.wheel_index,
            got=index,
            reason=facts.index_reasons.get(spec.id(), "the index cannot be reached"),
        )
        for spec in matrix.environments
        if (index := facts.indexes.get(spec.id(), spec.wheel_index)) != spec.wheel_index
    )


def _plan_builds(
    matrix: Matrix,
    selection: Selection,
    facts: Facts,
    kernels: Sequence[KernelInfo],
    measured: Sequence[PlannedEnvironment],
    devices: Sequence[Device],
) -> list[PlannedBuild]:
    """Return the builds. CUDA sources are compiled where there is no GPU, too, but not by a quick run."""
    builds = []
    for kernel, environment in itertools.product(kernels, measured):
        for device in kernel.devices:
            compiles = device == "cuda" and matrix.kernel(kernel.name).is_compiled and not selection.quick
            if device in devices or compiles:
                runnable = device in devices and (device == "cpu" or facts.gpus > 0)
                builds.append(
                    PlannedBuild(environment=environment.id, kernel=kernel.name, device=device, runnable=runnable)
                )
    return builds


def _count_launches(matrix: Matrix, selection: Selection, *, is_comparison: bool) -> tuple[int, int]:
    """Return how many launches are planned of each, and how many there may be while rows stay undecided."""
    if selection.launches is not None:
        return selection.launches, selection.launches
    if selection.quick:
        few = min(matrix.launches, QUICK_LAUNCHES)
        return few, few
    most = matrix.most_launches or MOST_LAUNCHES * matrix.launches
    return matrix.launches, most if is_comparison else matrix.launches


def interleave(keys: Sequence[tuple[str, str, Device]], each: int, seed: int) -> tuple[PlannedLaunch, ...]:
    """Return `each` blocks, and in each block every key once, in an order drawn from `seed`."""
    generator = random.Random(seed)
    launches: list[PlannedLaunch] = []
    for index in range(each):
        block = list(keys)
        generator.shuffle(block)
        for environment, kernel, device in block:
            place = len(launches)
            launches.append(
                PlannedLaunch(environment=environment, kernel=kernel, device=device, index=index, position=place)
            )
    return tuple(launches)


def quick_thresholds(own: Thresholds) -> Thresholds:
    effects = {name: max(QUICK_EFFECT, getattr(own, name)) for name in ("min_effect_cpu", "min_effect_cuda")}
    return own.model_copy(update=effects)


def _nothing_left(kernels: Sequence[KernelInfo], devices: Sequence[Device]) -> InputError:
    """Return why no cell is left of these kernels on these devices, and what would leave one."""
    asked = " or ".join(devices)
    others = sorted({device for kernel in kernels for device in kernel.devices} - set(devices))
    if not kernels:
        return InputError(
            "nothing to measure: no kernel that is selected runs on a workload that is selected",
            "select others: nox -s matrix -- --list shows all",
        )
    if not any(set(kernel.devices) & set(devices) for kernel in kernels):
        names = ", ".join(kernel.name for kernel in kernels)
        return InputError(
            f"nothing to measure on {asked}: these have neither sources nor devices for it: {names}",
            f"add sources or devices, or measure what there is: --device {','.join(others)}",
        )
    return InputError(
        f"nothing to measure: no workload has dtypes for {asked}",
        f"add some in matrix.yaml: dtypes: {{{devices[0]}: [float32]}}",
    )


# -- kernels and workloads --------------------------------------------------------------------------------------


def chosen(
    matrix: Matrix, selection: Selection, folder_files: FolderFiles
) -> tuple[list[KernelInfo], list[WorkloadInfo]]:
    """Return the selected kernels that have a selected workload, and the workloads that they use."""
    groups = matrix.groups
    attention = matrix.workloads if any(kernel.problem is None for kernel in matrix.kernels) else []
    shapes = [info for workload in attention for info in _attention_infos(workload, selection)]
    runs_on = {kernel.name: _infos_of(kernel, shapes, selection) for kernel in matrix.kernels}
    runs_on |= {name: [_operator_info(each, selection) for each in group] for name, group in groups.items()}
    names = pick("kernel", with_groups(selection.kernels, matrix), list(runs_on))
    every = list({info.id: info for infos in (shapes, *runs_on.values()) for info in infos}.values())
    known = dict.fromkeys(name for info in every for name in (info.name, info.id))
    wanted = set(pick("workload", selection.workloads, list(known)))
    kernels = []
    for name in names:
        own = [info for info in runs_on[name] if wanted & {info.name, info.id}]
        if own and name in groups:
            kernels.append(_group_info(name, own))
        elif own:
            kernels.append(_kernel_info(matrix, matrix.kernel(name), own, folder_files))
    used = {id for kernel in kernels for id in kernel.workloads}
    return kernels, [info for info in every if info.id in used]


def pick(kind: str, wanted: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return those of `known` that are wanted, all where nothing is; InputError where one is not among them."""
    refuse_unknown(kind, wanted, known)
    return [name for name in known if not wanted or name in wanted]


def with_groups(kernels: Sequence[str], matrix: Matrix) -> list[str]:
    """Return these kernels, with all groups of operators where `PYTORCH` is among them."""
    groups = list(matrix.groups)
    return [name for kernel in kernels for name in (groups if groups and kernel == PYTORCH else [kernel])]


def kernel_sources(kernel: Kernel, folder_files: FolderFiles) -> dict[Device, list[str]]:
    """Return source paths by device."""
    whole = [path for path in (kernel.prebuilt, kernel.model_new, kernel.problem) if path]
    if whole:
        return {device: whole for device in kernel.devices}
    if kernel.sources is not None:
        return {device: paths for device in DEVICES if (paths := list(getattr(kernel.sources, device)))}
    files = sorted(folder_files.get(kernel.folder or "", ()))
    cuda = [name for name in files if name.endswith(".cu")]
    host = [name for name in files if name.endswith((".cpp", ".cc", ".cxx"))]
    if not cuda and not host:
        raise InputError(f"kernel {kernel.name}: no .cpp or .cu file in {kernel.folder}/", "check the folder")
    if cuda and kernel.binding == "own":
        return {"cuda": cuda + host}
    sources: dict[Device, list[str]] = {"cuda": cuda, "cpu": host}
    return {device: paths for device, paths in sources.items() if paths}


def _kernel_info(matrix: Matrix, kernel: Kernel, own: Sequence[WorkloadInfo], files: FolderFiles) -> KernelInfo:
    sources = kernel_sources(kernel, files)
    return KernelInfo(
        name=kernel.name,
        deterministic=kernel.deterministic,
        precision=None if kernel.precision is None else kernel.precision.names,
        devices=list(sources),
        sources=[path for paths in sources.values() for path in paths],
        tunables={name: str(value) for name, value in kernel.tunables.items()},
        references_cuda=list(matrix.references_cuda) if matrix.references_cuda and not kernel.problem else None,
        workloads=[info.id for info in own],
        references=[protocol.MODEL] if kernel.problem else list(matrix.references),
    )


def _group_info(name: str, own: Sequence[WorkloadInfo]) -> KernelInfo:
    return KernelInfo(
        name=name,
        pytorch=True,
        devices=[device for device in DEVICES if any(device in info.devices for info in own)],
        sources=list(dict.fromkeys(info.problem for info in own if info.problem and not info.operator)),
        tunables={},
        workloads=[info.id for info in own],
        references=[protocol.MODEL],
    )


def _infos_of(kernel: Kernel, shapes: Sequence[WorkloadInfo], selection: Selection) -> list[WorkloadInfo]:
    """Return the workloads that a kernel runs on: its problem, or attention."""
    if kernel.problem is None:
        return [info for info in shapes if kernel.workloads is None or info.name in kernel.workloads]
    info = WorkloadInfo(
        id=kernel.name,  # its only one
        name=PurePosixPath(kernel.problem).stem,
        dtype=kernel.dtype,
        devices=list(kernel.devices),
        trials={INDEPENDENT: _count_trials(kernel.trials, selection, QUICK_PROBLEM_TRIALS)},
        problem=kernel.problem,
    )
    return [info]


def _count_trials(own: int, selection: Selection, quick: int) -> int:
    if selection.trials is not None:
        return selection.trials
    return min(own, quick) if selection.quick else own


def _attention_infos(workload: Workload, selection: Selection) -> list[WorkloadInfo]:
    trials = _count_trials(workload.trials, selection, QUICK_TRIALS)
    extra = min(workload.extra_trials, QUICK_EXTRA_TRIALS) if selection.quick else workload.extra_trials
    extra = min(extra, trials) if selection.trials is not None else extra
    others = [recipe for recipe in protocol.RECIPES if recipe != INDEPENDENT]
    recipes = {INDEPENDENT: trials} | (dict.fromkeys(others, extra) if extra else {})
    shape = workload.shape
    return [
        WorkloadInfo(
            **shape.model_dump(),
            id=id,
            name=workload.name,
            dtype=dtype,
            devices=[device for device in DEVICES if dtype in getattr(workload.dtypes, device)],
            causal=workload.causal,
            mask=workload.mask or "",
            dropout=workload.dropout,
            scale=workload.scale or 1 / math.sqrt(shape.head_dim),
            trials=recipes,
            backward=backward,
            flops=attention_flops(shape, workload.causal) * (WITH_GRADIENTS if backward else 1),
            bytes=2.0 * (shape.elements + shape.kv_elements) * (4 if dtype == "float32" else 2) * (2 if backward else 1)
            + workload.masks_bytes(dtype),
        )
        for dtype in dict.fromkeys(workload.dtypes.cpu + workload.dtypes.cuda)
        for id, backward in workload.ids(dtype).items()
    ]


def attention_flops(shape: Shape, causal: bool) -> float:
    """Return the floating-point operations of the two matrix products: 4 B H S K D, and what the mask leaves of
    them."""
    rows, keys = shape.seq_len, shape.keys
    rising = min(rows, keys)  # rows that each see one key more
    pairs = rising * (rising + 1) / 2 + (rows - rising) * keys if causal else rows * keys
    return float(4 * shape.batch * shape.heads * pairs * shape.head_dim)


def _operator_info(measured: OperatorWorkload, selection: Selection) -> WorkloadInfo:
    operator = measured.operator
    return WorkloadInfo(
        id=measured.id,
        name=measured.name,
        dtype=measured.dtype,
        devices=list(operator.devices),
        trials={INDEPENDENT: _count_trials(operator.trials, selection, QUICK_TRIALS)},
        problem=operator.subject,
        operator=None if operator.request is None else asdict(operator.request),
        backward=measured.backward,
        compiled=measured.compiled,
    )
