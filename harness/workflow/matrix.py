"""The workflow of a run: plan, prepare, build, validate, compare, launch. Every step is a record, written at once.

What is recorded is not done again (`harness.config.keys`): an interrupted run continues where it stopped, validations,
experiments and whole blocks of launches whose keys are unchanged are taken from the runs that hold them, and an
unchanged run ends at once.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from harness.config.plan import Plan
from harness.errors import BUILD_FAILED, INFRASTRUCTURE, InputError
from harness.executors.process import kill_leftovers
from harness.experiments.admission import admit
from harness.experiments.compiled import sample_all, unsampled
from harness.experiments.packages import exchange_packages
from harness.experiments.plan import Focus
from harness.experiments.run import explain, unexplained
from harness.gpu import use
from harness.progress import Display
from harness.run.ceilings import find_ceilings
from harness.run.context import Context
from harness.run.environments import prepare_and_build
from harness.run.extend import further
from harness.run.folders import all_runs, find_run, held, new_run, now_utc, point_latest
from harness.run.launch import launch_all, launch_path, launches_of
from harness.run.memo import mend, recall_rounds, renew, settle
from harness.run.pairwise import compare_all, uncompared
from harness.run.prepare import Prepared, RunOptions, complete, draft_plan, make_plan
from harness.run.stores import store_problems
from harness.run.validate import validate_all
from harness.schema.records import ValidationRecord
from harness.schema.run_records import Cell, GpuFacts, RunRecord, Selection
from harness.schema.storage import Run, load_record, save_record
from harness.tools import cache_folder, commit_of, lock_file
from harness.worker import protocol


def gpu_in_use(prepared: Prepared) -> GpuFacts | None:
    """The GPU of this machine that CUDA cells run on; None where there are none, or they run elsewhere."""
    engine = prepared.choice.facts
    if not any(cell.device == "cuda" for cell in prepared.plan.cells) or (engine is not None and not engine.local):
        return None
    return use()


def run_record(
    options: RunOptions, selection: Selection, prepared: Prepared, run: Run, gpu: GpuFacts | None
) -> RunRecord:
    plan = prepared.plan
    return RunRecord(
        run_id=run.folder.name,
        created_utc=now_utc(),
        plan_digest=plan.digest,
        commit=commit_of(options.root),
        command=list(options.command),
        selection=selection,
        base_image=options.base_image,
        mode=plan.mode,
        quick=plan.quick,
        executor=plan.facts.executor,
        executor_reason=plan.facts.executor_reason,
        sandboxed=plan.facts.sandboxed,
        engine=dict(plan.facts.engine),
        bundle=dict(plan.facts.bundle),
        host=dict(plan.facts.host),
        derived=options.derived is not None,
        baseline=plan.baseline,
        environments=[e.id for e in plan.environments],
        kernels=list(plan.kernels),
        workloads=list(plan.workloads),
        cells=list(plan.cells),
        gpus=[gpu] if gpu else [],
        fallbacks=list(plan.fallbacks),
        thresholds=plan.thresholds,
        limits=plan.limits.model_dump(),
        tolerances=plan.tolerances.model_dump(exclude={"decides"}),
        launches=plan.launches_each,
        most_launches=plan.most_launches if plan.most_launches > plan.launches_each else None,
        order_seed=plan.seed,
        matrix_text=prepared.text,
        sources_sha256=dict(plan.facts.sources_sha256),
        kernelbench=plan.kernelbench,
    )


def run_matrix(options: RunOptions, selection: Selection, draft: Prepared | None = None) -> tuple[Run, list[int]]:
    """Run, or finish, what is asked. Returns the run and the exit codes that hold (`harness.errors`).

    `draft`: its plan, where that is made already.
    """
    prepared = complete(draft or draft_plan(options, selection), options, write_pins=True)
    plan, root = prepared.plan, options.root
    gpu = gpu_in_use(prepared)
    with _working_on(root, plan):
        run = (None if options.fresh else find_run(root, plan.digest)) or new_run(root, plan.digest)
        for path in mend(run):
            print(f"{path.relative_to(run.folder)}: is damaged, and made again")
        if any(environment.status == protocol.BROKEN for environment in run.environments()):
            # What broke may be mended; environments are compared within a block, so all are timed again.
            run = new_run(root, plan.digest)
        if not run.run_path().exists():
            save_record(run.run_path(), run_record(options, selection, prepared, run, gpu))
        renew(run, plan, prepared.text)
        print(f"executor: {plan.facts.executor_reason}")
        if plan.most_launches > plan.launches_each:
            print(f"launches: {plan.launches_each}, while rows stay undecided {_up_to(plan)}")
        if gpu is not None:
            others = "; CUDA_VISIBLE_DEVICES chooses another" if plan.facts.gpus > 1 else ""
            print(f"GPU: {gpu.name} ({gpu.uuid}), driver {gpu.driver}{others}")
        for fallback in plan.fallbacks:
            print(f"FALLBACK {fallback.subject}: wheels from {fallback.got}, not {fallback.wanted}: {fallback.reason}")
        try:
            codes = _finish(options, prepared, run, gpu)
            if options.explain:
                exchange_packages(options, selection, prepared, run, Focus(), measure)
            settle(run)
        finally:
            run.sweep()
    if options.derived is None:
        point_latest(root, run)
    return run, codes


def measure(options: RunOptions, selection: Selection) -> Run:
    return run_matrix(options, selection)[0]


def _up_to(plan: Plan) -> str:
    return f"up to {plan.most_launches} of each environment and row"


def _working_on(root: Path, plan: Plan) -> AbstractContextManager[None]:
    """Hold the run of this plan."""
    lock = lock_file(cache_folder(), f"run-{protocol.digest([str(root), plan.digest])[:16]}")
    return held(lock, "another process is working on this very run; waiting for it")


def _finish(options: RunOptions, prepared: Prepared, run: Run, gpu: GpuFacts | None) -> list[int]:
    """Make what the run lacks."""
    plan = prepared.plan
    due = [launch for launch in plan.launches if options.blocks is None or launch.index < options.blocks]
    wanted_launches = [launch for launch in due if not launch_path(run, launch).exists()]
    # A finished run has ended, by the thresholds of then: other ones only judge it.
    ended = run.load().finished_utc != ""
    goes_on = options.blocks is None and options.derived is None and not ended
    if (
        not wanted_launches
        and not (goes_on and further(plan, run.launches()))
        and all(_is_validated(options.root, plan, run, cell) for cell in plan.cells)
        and all(run.environment_path(environment.id).exists() for environment in plan.environments)
        and all(run.build_path(b.environment, b.kernel, b.device).exists() for b in plan.builds)
        and not uncompared(plan, run)
        and not unsampled(options.root, prepared.matrix, plan, run)
        and not (options.explain and unexplained(run))
    ):
        print("nothing changed since this run was finished: its records are reported again (--fresh measures anew)")
        return _codes(run)
    context = _context(options, prepared, run, gpu)
    total = len(plan.measured) + len(plan.builds) + len(plan.cells) + len(wanted_launches)
    with Display(total) as display:
        prepare_and_build(context, display)
        store_problems(context, display)
        validate_all(context, display, fresh=options.fresh)
        compare_all(context, display)
        sample_all(context, display)
        refused = admit(context, display) if options.admit else {}
        recalls = not options.fresh and options.derived is None  # what is derived measures what it asks for
        while due:
            launches = launches_of(context, due, refused)
            if recalls:
                recall_rounds(context, display, due, launches)
            if not options.admit:  # settings are compared with each other, not with what the device can do
                find_ceilings(context, display, due, launches)
            launch_all(context, display, due, launches, refused)
            due = further(plan, run.launches()) if goes_on else []
            if due:
                display.more(len(due))
                display.note(f"some rows are undecided: {len(due)} launches more, {_up_to(plan)}")
        if options.explain:
            _explain(context, display, Focus())
    return _codes(run)


def _is_validated(root: Path, plan: Plan, run: Run, cell: Cell) -> bool:
    """Of an `eval`'s baseline, which it does not run: or no run holds its validation by now."""
    path = run.validation_path(cell)
    if cell.environment in plan.measured or not path.exists():
        return path.exists()
    if load_record(path, ValidationRecord).status != protocol.NOT_RUN:
        return True
    place = path.relative_to(run.folder)
    return not any((other.folder / place).is_file() for other in all_runs(root) if other.folder != run.folder)


def _context(options: RunOptions, prepared: Prepared, run: Run, gpu: GpuFacts | None) -> Context:
    kill_leftovers()
    cache = cache_folder()
    return Context(
        root=options.root,
        cache=cache,
        matrix=prepared.matrix,
        plan=prepared.plan,
        run=run,
        executor=options.machine.make_executor(prepared.choice, prepared.matrix, prepared.plan, options.root, cache),
        sources=prepared.sources,
        gpu=gpu,
    )


def run_explain(options: RunOptions, selection: Selection, run: Run, focus: Focus) -> list[int]:
    """Experiments on a finished run, which `options` and `selection` made. Returns the exit codes that hold.

    InputError where this is no longer what the run measured.
    """
    prepared = make_plan(options, selection, write_pins=True)
    plan = prepared.plan
    if run.load().plan_digest != plan.digest:
        raise InputError(
            f"{run.folder}: matrix.yaml, a source, the harness or this machine is not what that run measured",
            "start the matrix again: what is unchanged is not measured twice, and it explains itself",
        )
    gpu = gpu_in_use(prepared)
    with _working_on(options.root, plan):
        context = _context(options, prepared, run, gpu)
        try:
            with Display(len(plan.measured) + len(plan.builds)) as display:
                prepare_and_build(context, display)
                store_problems(context, display)
                _explain(context, display, focus)
            exchange_packages(options, selection, prepared, run, focus, measure, again=True)
        finally:
            run.sweep()
    return _codes(run)


def _explain(context: Context, display: Display, focus: Focus) -> None:
    done = explain(context, display, focus)
    if done:
        display.note(f"{done} experiments recorded")


def _codes(run: Run) -> list[int]:
    codes = []
    if any(environment.status == protocol.BROKEN for environment in run.environments()):
        codes.append(INFRASTRUCTURE)
    if any(build.status == protocol.BUILD_FAILED for build in run.builds()):
        codes.append(BUILD_FAILED)
    return codes
