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
from harness.errors import InputError, meant
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


def quick_thresholds(own: Thresholds) -> Thresholds:
    effects = {name: max(QUICK_EFFECT, getattr(own, name)) for name in ("min_effect_cpu", "min_effect_cuda")}
    return own.model_copy(update=effects)


def attention_flops(shape: Shape, causal: bool) -> float:
    """Floating-point operations of the two matrix products: 4 B H S K D, and what the mask leaves of them."""
    rows, keys = shape.seq_len, shape.keys
    rising = min(rows, keys)  # rows that each see one key more
    pairs = rising * (rising + 1) / 2 + (rows - rising) * keys if causal else rows * keys
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
        for dtype in dtypes
        for id, backward in workload.ids(dtype).items()
    ]


def _problem_info(kernel: Kernel, selection: Selection) -> WorkloadInfo:
    trials = selection.trials or (min(kernel.trials, QUICK_PROBLEM_TRIALS) if selection.quick else kernel.trials)
    assert kernel.problem is not None
    name = PurePosixPath(kernel.problem).stem
    return WorkloadInfo(
        id=kernel.name,  # its only one
        name=name,
        dtype=kernel.dtype,
        devices=list(kernel.devices),
        trials={"independent": trials},
        problem=kernel.problem,
    )


def _operator_info(measured: OperatorWorkload, selection: Selection) -> WorkloadInfo:
    operator = measured.operator
    trials = selection.trials or (min(operator.trials, QUICK_TRIALS) if selection.quick else operator.trials)
    return WorkloadInfo(
        id=measured.id,
        name=measured.name,
        dtype=measured.dtype,
        devices=list(operator.devices),
        trials={"independent": trials},
        problem=operator.subject,
        operator=None if operator.request is None else asdict(operator.request),
        backward=measured.backward,
        compiled=measured.compiled,
    )


def pick(kind: str, wanted: Sequence[str], known: Sequence[str]) -> list[str]:
    """Those of `known` that are wanted, all where nothing is; InputError where one is not among them."""
    for name in wanted:
        if name not in known:
            choose = f"{meant(name, known)}choose from: {', '.join(known)}"
            raise InputError(f"--{kind} {name}: not in matrix.yaml", choose)
    return [name for name in known if not wanted or name in wanted]


def kernel_sources(kernel: Kernel, folder_files: Mapping[str, Sequence[str]]) -> dict[Device, list[str]]:
    """Device to source paths. `folder_files` lists the files of every kernel folder, relative to matrix.yaml."""
    if kernel.model_new is not None and kernel.problem is not None:
        return {device: [kernel.model_new, kernel.problem] for device in kernel.devices}
    if kernel.prebuilt is not None:
        return {device: [kernel.prebuilt] for device in kernel.devices}
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
        sources = {device: paths for device in DEVICES if (paths := list(getattr(kernel.sources, device)))}
    return sources


def plan_run(
    matrix: Matrix,
    selection: Selection,
    facts: Facts,
    folder_files: Mapping[str, Sequence[str]] | None = None,
    kernelbench: KernelBench | None = None,
) -> Plan:
    """The plan. InputError where the selection names what the matrix lacks, or leaves nothing to measure."""
    environments = [
        PlannedEnvironment(spec=spec, index=facts.indexes.get(spec.id(), spec.wheel_index))
        for spec in matrix.environments
    ]
    fallbacks = tuple(_fallback(each, facts) for each in environments if each.index != each.spec.wheel_index)
    base = next(each for each in environments if matrix.is_baseline(each.spec))
    measured = environments
    if selection.torch is not None:
        measured = [each for each in environments if selection.torch in (each.spec.torch, each.id)]
        if not measured:
            known = sorted({each.spec.torch for each in environments})
            remedy = f"{meant(selection.torch, known)}choose from: {', '.join(known)}; or add it there"
            raise InputError(f"torch {selection.torch}: not in matrix.yaml", remedy)
        environments = [base, *(each for each in measured if each is not base)]

    devices: list[Device] = list(selection.devices) or (["cpu", "cuda"] if facts.gpus else ["cpu"])
    kernels, workloads = chosen(matrix, selection, folder_files or {})
    compiled = {kernel.name for kernel in matrix.kernels if kernel.is_compiled}
    builds = []
    for kernel, environment in itertools.product(kernels, measured):
        for device in kernel.devices:
            compiles = device == "cuda" and kernel.name in compiled and not selection.quick
            if device in devices or compiles:
                runnable = device in devices and (device == "cpu" or facts.gpus > 0)
                builds.append(
                    PlannedBuild(environment=environment.id, kernel=kernel.name, device=device, runnable=runnable)
                )
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

    launches_each = selection.launches or (min(matrix.launches, QUICK_LAUNCHES) if selection.quick else matrix.launches)
    most_launches = launches_each
    comparable = selection.mode == "matrix" and len(measured) > 1 and kernelbench is None
    if comparable and selection.launches is None and not selection.quick:
        most_launches = matrix.most_launches or MOST_LAUNCHES * launches_each
    wanted = {(cell.environment, cell.kernel, cell.device) for cell in cells}
    runnable_keys = [(each.environment, each.kernel, each.device) for each in builds if each.runnable]
    launches = interleave([each for each in runnable_keys if each in wanted], most_launches, matrix.seed)
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
        fallbacks=fallbacks,
        facts=facts,
        kernelbench=kernelbench,
    )
    return with_digest(plan, matrix)


def with_digest(plan: Plan, matrix: Matrix) -> Plan:
    """Return the plan with the digest of all that its records depend on, as far as its facts say it."""
    return replace(plan, digest=plan_digest(plan, matrix))


def _nothing_left(kernels: Sequence[KernelInfo], devices: Sequence[Device]) -> InputError:
    """Why no cell is left of these kernels on these devices, and what would leave one."""
    asked = " and ".join(devices)
    without = [kernel.name for kernel in kernels if not set(kernel.devices) & set(devices)]
    if not kernels:
        return InputError(
            "nothing to measure: no kernel that is selected runs on a workload that is selected",
            "select others: nox -s matrix -- --list shows all",
        )
    if len(without) == len(kernels):
        others = sorted({device for kernel in kernels for device in kernel.devices})
        if all(kernel.pytorch for kernel in kernels):
            return InputError(
                f"nothing to measure: every operator that is selected has devices: [{', '.join(others)}]",
                f"run it on a machine that has one; to see the plan: --list --device {','.join(others)}",
            )
        name = " and ".join(without)
        return InputError(
            f"nothing to measure: {name} {'has' if len(without) == 1 else 'have'} no {asked} sources",
            f"add them in matrix.yaml, or measure what there is: --device {','.join(others)}",
        )
    return InputError(
        f"nothing to measure: no workload has dtypes for {asked}",
        f"add some in matrix.yaml: dtypes: {{{devices[0]}: [float32]}}",
    )


def _fallback(environment: PlannedEnvironment, facts: Facts) -> Fallback:
    return Fallback(
        subject=environment.id,
        wanted=environment.spec.wheel_index,
        got=environment.index,
        reason=facts.index_reasons.get(environment.spec.id(), "the index cannot be reached"),
    )


def with_groups(kernels: Sequence[str], matrix: Matrix) -> list[str]:
    """These kernels, with all groups of operators where `PYTORCH` is among them."""
    groups = list(matrix.groups)
    return [name for kernel in kernels for name in (groups if groups and kernel == PYTORCH else [kernel])]


def chosen(
    matrix: Matrix, selection: Selection, folder_files: Mapping[str, Sequence[str]]
) -> tuple[list[KernelInfo], list[WorkloadInfo]]:
    """The selected kernels that have a selected workload, and the workloads that they use."""
    asked = with_groups(selection.kernels, matrix)
    names = pick("kernel", asked, [*(kernel.name for kernel in matrix.kernels), *matrix.groups])
    shapes = [info for workload in matrix.workloads for info in _workload_infos(workload, selection)]
    problems = {kernel.name: _problem_info(kernel, selection) for kernel in matrix.kernels if kernel.problem}
    groups = {
        name: [_operator_info(workload, selection) for workload in workloads]
        for name, workloads in matrix.groups.items()
    }
    operators = [info for group in groups.values() for info in group]
    known = [name for info in [*shapes, *problems.values(), *operators] for name in (info.name, info.id)]
    wanted = set(pick("workload", selection.workloads, list(dict.fromkeys(known))))
    kernels, own_problems = list[KernelInfo](), list[WorkloadInfo]()
    for kernel in (kernel for kernel in matrix.kernels if kernel.name in names):
        sources = kernel_sources(kernel, folder_files)
        candidates = [problems[kernel.name]] if kernel.problem else shapes
        own = [
            info
            for info in candidates
            if wanted & {info.name, info.id}
            and (kernel.workloads is None or kernel.problem or info.name in kernel.workloads)
        ]
        if not own:
            continue
        if kernel.problem:
            own_problems += own
        kernels.append(
            KernelInfo(
                name=kernel.name,
                deterministic=kernel.deterministic,
                precision=None if kernel.precision is None else kernel.precision.names,
                devices=list(sources),
                sources=[path for paths in sources.values() for path in paths],
                tunables={name: str(value) for name, value in kernel.tunables.items()},
                references_cuda=list(matrix.references_cuda) if matrix.references_cuda and not kernel.problem else None,
                workloads=[info.id for info in own],
                references=["model"] if kernel.problem else list(matrix.references),
            )
        )
    for name, group in groups.items():
        own = [info for info in group if wanted & {info.name, info.id}]
        if own and name in names:
            own_problems += own
            kernels.append(
                KernelInfo(
                    name=name,
                    pytorch=True,
                    devices=[device for device in DEVICES if any(device in info.devices for info in own)],
                    sources=list(dict.fromkeys(info.problem for info in own if info.problem and not info.operator)),
                    tunables={},
                    workloads=[info.id for info in own],
                    references=[protocol.MODEL],
                )
            )
    used = {id for kernel in kernels for id in kernel.workloads}
    return kernels, [info for info in [*shapes, *own_problems] if info.id in used]


def interleave(keys: Sequence[tuple[str, str, Device]], each: int, seed: int) -> tuple[PlannedLaunch, ...]:
    """`each` blocks, and in each block every key once, in an order drawn from `seed`."""
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
