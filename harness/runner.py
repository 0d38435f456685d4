"""The workflow of a run: plan, prepare, build, validate, cross, launch. Every step is a record, written at once.

What is recorded is not done again: an interrupted run continues where it stopped, a validation whose key is
unchanged is taken from the run that holds it, and an unchanged run ends at once.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from harness.crossing import cross
from harness.errors import BUILD_FAILED, INFRASTRUCTURE, Unrecorded
from harness.executors.choosing import make_executor
from harness.executors.proving import environment_record
from harness.gathering import Options, Prepared, make_plan
from harness.gpu import lock_path, use
from harness.inside import protocol
from harness.pins import ensure_pins
from harness.plan import PlannedEnvironment, Selection
from harness.process import kill_leftovers
from harness.progress import Display
from harness.records import (
    BuildRecord,
    Cell,
    Device,
    EnvironmentRecord,
    GpuFacts,
    LaunchRecord,
    RunRecord,
    ValidationRecord,
)
from harness.runs import find_run, held, new_run, now_utc, point_latest, stored
from harness.side_by_side import side_by_side
from harness.steps.building import build, build_key
from harness.steps.ceilings import device_name, measure_ceilings
from harness.steps.context import Context
from harness.steps.launching import launch
from harness.steps.probing import check_device
from harness.steps.validating import not_validated, store_problem, validate, validation_key
from harness.storage import AnyRecord, Run, load_record, refuse_without_space, save_record
from harness.tools import cache_folder


def gpu_in_use(prepared: Prepared) -> GpuFacts | None:
    """The GPU of this machine that CUDA cells run on; None where there are none, or they run elsewhere."""
    engine = prepared.choice.facts
    if not any(cell.device == "cuda" for cell in prepared.plan.cells) or (engine is not None and not engine.local):
        return None
    return use()


def run_record(options: Options, prepared: Prepared, run: Run, gpu: GpuFacts | None) -> RunRecord:
    plan = prepared.plan
    return RunRecord(
        run_id=run.folder.name,
        created_utc=now_utc(),
        plan_digest=plan.digest,
        command=list(options.command),
        mode=plan.mode,
        quick=plan.quick,
        executor=plan.facts.executor,
        executor_reason=plan.facts.executor_reason,
        engine=dict(plan.facts.engine),
        bundle=dict(plan.facts.bundle),
        host=dict(plan.facts.host),
        baseline=plan.baseline,
        environments=[e.id for e in plan.environments],
        kernels=list(plan.kernels),
        workloads=list(plan.workloads),
        cells=list(plan.cells),
        gpus=[gpu] if gpu else [],
        fallbacks=list(plan.fallbacks),
        thresholds=dict(plan.thresholds),
        tolerances={k: v for k, v in plan.tolerances.items() if k != "decides"},
        launches=plan.launches_each,
        order_seed=plan.order_seed,
        matrix_text=prepared.text,
        sources_sha256=dict(plan.facts.sources_sha256),
    )


def run_matrix(options: Options, selection: Selection) -> tuple[Run, list[int]]:
    """Run, or finish, what is asked. Returns the run and the exit codes that hold (`harness.errors`)."""
    prepared = make_plan(options, selection, write_pins=True)
    plan, root = prepared.plan, options.root
    gpu = gpu_in_use(prepared)
    locks = cache_folder() / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    lock = locks / f"run-{protocol.digest([str(root), plan.digest])[:16]}.lock"
    with held(lock, "another process is working on this very run; waiting for it"):
        run = (None if options.fresh else find_run(root, plan.digest)) or new_run(root, plan.digest)
        if any(environment.status == protocol.BROKEN for environment in run.environments()):
            # What broke may be mended; environments are compared within a block, so all are timed again.
            run = new_run(root, plan.digest)
        if not run.run_path().exists():
            save_record(run.run_path(), run_record(options, prepared, run, gpu))
        print(f"executor: {plan.facts.executor_reason}")
        if gpu is not None:
            others = "; CUDA_VISIBLE_DEVICES chooses another" if plan.facts.gpus > 1 else ""
            print(f"GPU: {gpu.name} ({gpu.uuid}), driver {gpu.driver}{others}")
        for fallback in plan.fallbacks:
            print(f"FALLBACK {fallback.subject}: wheels from {fallback.got}, not {fallback.wanted}: {fallback.reason}")
        try:
            codes = _finish(options, prepared, run, gpu)
        except Exception:
            run.sweep()
            raise
        run.sweep()
    point_latest(root, run)
    return run, codes


# Validations at once: on the CPU one waits for imports and files as long as it computes.
WORKERS: dict[Device, int] = {"cpu": 2, "cuda": 1}
NO_BASELINE = "no stored validation of the baseline: start `nox -s matrix` first"


def _finish(options: Options, prepared: Prepared, run: Run, gpu: GpuFacts | None) -> list[int]:
    plan = prepared.plan
    wanted_launches = [
        launch
        for launch in plan.launches
        if not run.launch_path(launch.environment, launch.kernel, launch.device, launch.index).exists()
    ]
    if (
        not wanted_launches
        and all(run.validation_path(cell).exists() for cell in plan.cells)
        and all(run.build_path(b.environment, b.kernel, b.device).exists() for b in plan.builds)
    ):
        print("nothing changed since this run was finished: its records are reported again (--fresh measures anew)")
        return _codes(run)
    kill_leftovers()
    cache = cache_folder()
    context = Context(
        root=options.root,
        cache=cache,
        matrix=prepared.matrix,
        plan=plan,
        run=run,
        executor=make_executor(prepared.choice, prepared.matrix.limits, plan, options.root, cache),
        sources=prepared.sources,
        gpu=gpu,
    )
    total = len(plan.measured) + len(plan.builds) + len(plan.cells) + len(wanted_launches)
    with Display(total) as display:
        _prepare_and_build(context, display)
        _store(context)
        _validate(context, display, fresh=options.fresh)
        _cross(context, display)
        _ceilings(context, display)
        _launch(context, display)
    return _codes(run)


def _codes(run: Run) -> list[int]:
    codes = []
    if any(environment.status == protocol.BROKEN for environment in run.environments()):
        codes.append(INFRASTRUCTURE)
    if any(build.status == protocol.BUILD_FAILED for build in run.builds()):
        codes.append(BUILD_FAILED)
    return codes


def _save(context: Context, path: Path, record: AnyRecord) -> AnyRecord:
    """Save what was measured; a failure that a full disk explains stops the run, and is no row of it."""
    if context.executor.name != "docker":  # a container has a disk of its own
        refuse_without_space(record, context.run.folder, context.cache, Path(tempfile.gettempdir()))
    return context.save(path, record)


def _prepare_and_build(context: Context, display: Display) -> None:
    """Environments side by side: one installs, which waits for the network, while the other compiles."""
    plan, run = context.plan, context.run

    def one(environment: PlannedEnvironment) -> None:
        record = context.executor.prepare(environment, _pins(context, environment))
        if record.status == protocol.BROKEN and run.has_launches(environment.id):
            # What was measured stays, and is compared within its blocks: this may pass, and the run goes on then.
            raise Unrecorded(
                f"{environment.id}: {record.message}",
                "start the same command again when it is mended: the run goes on; or measure anew: --fresh",
            )
        context.environments[environment.id] = record
        _save(context, run.environment_path(environment.id), record)
        what = "found" if record.reused else "made"
        display.step(f"{environment.id}: {what + ' and proven' if record.status == protocol.OK else record.message}")
        for planned in (b for b in plan.builds if b.environment == environment.id):
            built = build(context, planned)
            context.builds[planned.environment, planned.kernel, planned.device] = built
            _save(context, run.build_path(planned.environment, planned.kernel, planned.device), built)
            how = "unchanged" if built.reused else built.status.replace("_", " ")
            display.step(
                f"{environment.id}: build {planned.kernel} ({planned.device}): {how}"
                + (f": {built.message}" if built.message and built.status != protocol.OK else "")
            )

    measured = [environment for environment in plan.environments if environment.id in plan.measured]
    side_by_side([partial(one, environment) for environment in measured], workers=2, stop=context.executor.stop)
    for environment in plan.environments:
        if environment.id not in plan.measured:
            _recall_environment(context, environment)


def _pins(context: Context, environment: PlannedEnvironment) -> Path | None:
    """An environment's pin file; None for the host's, which nobody pinned."""
    return None if environment.spec.is_host else ensure_pins(context.root, environment, context.matrix)[0]


def _recall_environment(context: Context, environment: PlannedEnvironment) -> None:
    """The baseline of an `eval`: not run, its stored records taken where their keys say that they still hold."""
    key = context.executor.key(environment, _pins(context, environment))
    place = context.run.environment_path(environment.id).relative_to(context.run.folder)
    known = next((r for _, r in stored(context.root, place, EnvironmentRecord, key) if r.status == protocol.OK), None)
    if known is None:
        known = environment_record(
            environment, executor=context.executor.name, key=key, status="not_run", message=NO_BASELINE
        )
    context.environments[environment.id] = known
    save_record(context.run.environment_path(environment.id), known)


def _store(context: Context) -> None:
    for workload in context.plan.workloads:
        if workload.problem is None:
            continue
        kernel = next(
            k
            for k in context.matrix.kernels
            if k.problem == workload.problem and workload.id in context.plan.kernel(k.name).workloads
        )
        order = [context.plan.baseline, *context.plan.measured]
        ready = [e for e in order if e in context.plan.measured and context.environment_ok(e)]
        context.stores[workload.id] = (
            store_problem(context, kernel, workload, ready[0]) if ready else (None, "no environment is usable")
        )


def _validate(context: Context, display: Display, *, fresh: bool) -> None:
    """Workloads side by side, since nothing is timed; a workload's environments in turn, so that the truth is
    computed once. On a GPU one after another."""
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in context.plan.cells:
        groups.setdefault((cell.device, cell.kernel, cell.workload), []).append(cell)

    def one(cells: list[Cell]) -> None:
        for cell in cells:
            _validate_cell(context, display, cell, fresh=fresh)

    for device, workers in WORKERS.items():
        calls = [partial(one, cells) for key, cells in groups.items() if key[0] == device]
        if calls:
            with _device(context, device):
                side_by_side(calls, workers=workers, stop=context.executor.stop)
    shutil.rmtree(context.run.folder / "scratch" / "truth", ignore_errors=True)


def _validate_cell(context: Context, display: Display, cell: Cell, *, fresh: bool) -> None:
    path = context.run.validation_path(cell)
    if path.exists():
        load_record(path, ValidationRecord)  # a damaged one is refused now, not when all is measured
        display.step(f"validated before: {cell.id}")
        return
    measured = cell.environment in context.plan.measured
    if measured:
        built = context.builds[cell.environment, cell.kernel, cell.device].key
    else:
        environment = context.environments[cell.environment]
        built = build_key(context, environment.key, context.kernel(cell.kernel), cell.device)
    key = validation_key(context, built, cell)
    if not fresh and _recall(context, cell, key):
        display.step(f"validation unchanged: {cell.id}")
        return
    record = validate(context, cell) if measured else not_validated(context, cell, key, NO_BASELINE)
    record = _save(context, path, record)
    display.step(
        f"validate {cell.id}: {record.status.replace('_', ' ')}"
        + (f": {record.message}" if record.message and record.status != protocol.OK else "")
    )


def _recall(context: Context, cell: Cell, key: str) -> bool:
    """A validation with this key from an earlier run, copied here with its arrays and its build record."""
    run = context.run
    for other, record in stored(context.root, run.validation_path(cell).relative_to(run.folder), ValidationRecord, key):
        if record.status not in (protocol.OK, protocol.WRONG):
            continue
        if record.arrays and (other.folder / record.arrays).is_file():
            target = run.folder / record.arrays
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(other.folder / record.arrays, target)
        build_path = run.build_path(cell.environment, cell.kernel, cell.device)
        if not build_path.exists():
            theirs = other.build_path(cell.environment, cell.kernel, cell.device)
            if theirs.is_file():
                save_record(build_path, load_record(theirs, BuildRecord))
        save_record(run.validation_path(cell), record)
        return True
    return False


def _cross(context: Context, display: Display) -> None:
    """From stored outputs, without running anything: of large workloads that takes a while."""
    plan, run = context.plan, context.run
    for kernel, device, workload in dict.fromkeys((c.kernel, c.device, c.workload) for c in plan.cells):
        path = run.crossing_path(kernel, device, workload)
        if path.exists():
            continue
        cells = [c for c in plan.cells if (c.kernel, c.device, c.workload) == (kernel, device, workload)]
        validations = [load_record(run.validation_path(c), ValidationRecord) for c in cells]
        record = cross(kernel, plan.workload(workload), device, validations, run.folder)
        if record is not None:
            save_record(path, record)
            display.note(f"crossed {len(record.pairs)} pairs of outputs: {kernel}/{workload}/{device}")


def _ceilings(context: Context, display: Display) -> None:
    """Of the device that CUDA launches will use, by the baseline's PyTorch, else by the first that is usable."""
    plan, run = context.plan, context.run
    waiting = {
        launch.environment
        for launch in plan.launches
        if launch.device == "cuda" and context.environment_ok(launch.environment)
    }
    environment = next((id for id in (plan.baseline, *plan.measured) if id in waiting), None)
    if environment is None:
        return
    path = run.ceiling_path(device_name(context, environment)[0])
    if path.exists():
        return
    with _device(context, "cuda"):
        record = _save(context, path, measure_ceilings(context, environment))
        if record.status in ENDED_BADLY:
            check_device(context, environment)
    display.note(f"ceilings of {record.device_name}: {record.message or record.status}")


def _launch(context: Context, display: Display) -> None:
    plan, run = context.plan, context.run
    validations: dict[tuple[str, str, str], dict[str, ValidationRecord]] = {}
    for cell in plan.cells:
        record = load_record(run.validation_path(cell), ValidationRecord)
        validations.setdefault((cell.environment, cell.kernel, cell.device), {})[cell.workload] = record
    for planned in plan.launches:
        place = planned.environment, planned.kernel, planned.device
        path = run.launch_path(*place, planned.index)
        if path.exists():
            continue
        if context.environment_ok(planned.environment):
            with _device(context, planned.device):
                launched = _save(context, path, launch(context, planned, validations[place]))
                if planned.device == "cuda" and launched.status in ENDED_BADLY:
                    check_device(context, planned.environment)
        else:
            broken = LaunchRecord(
                environment=planned.environment,
                kernel=planned.kernel,
                device=planned.device,
                key="",
                index=planned.index,
                position=planned.position,
                started_utc=now_utc(),
                duration_s=0,
                status="broken",
                message="its environment is broken",
            )
            launched = _save(context, path, broken)
        display.step(
            f"launch {planned.index + 1}/{plan.launches_each} {planned.environment} {planned.kernel} "
            f"({planned.device}): {launched.status.replace('_', ' ')}"
            + (f": {launched.message}" if launched.message else "")
        )


ENDED_BADLY = (protocol.CRASHED, protocol.TIMED_OUT, protocol.KILLED)


def _device(context: Context, device: Device) -> AbstractContextManager[None]:
    """One measurement at a time on a GPU, and one on this machine's processors, whoever's run it is."""
    if device == "cpu" or context.gpu is None:
        lock = context.cache / "locks" / "measure.lock"
        return held(lock, "another run is measuring on this machine; waiting for it")
    path = lock_path(context.gpu.uuid)
    waiting = f"another run is measuring on {context.gpu.name} ({context.gpu.uuid}); waiting for it"
    return held(path, waiting, mode=0o666, remedy=f"its owner must let others write it: chmod 666 {path}")
