"""Experiments on a finished run: what its records call for, and is not recorded yet.

Each experiment leaves its records at once, so what was interrupted goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.experiments.checkers import checkers_key, run_checkers
from harness.experiments.conditions import conditions_key, run_conditions
from harness.experiments.factors import FactorExperiment
from harness.experiments.jobs import Trials, jobs_of
from harness.experiments.plan import Case, Focus, Planned, plan_experiments, sequences
from harness.experiments.profile import profile_key, run_profile
from harness.progress import Display
from harness.run.context import Context
from harness.run.memo import is_recorded
from harness.schema.experiment_records import (
    CheckersRecord,
    ConditionsExperiment,
    ConditionsRecord,
    FactorRecord,
    ProfileRecord,
)
from harness.schema.records import Outcome
from harness.schema.run_records import Cell
from harness.schema.storage import Run, load_record
from harness.stats.screen import Profiled, moved_targets
from harness.worker import protocol

CHECKERS = "checkers"
CHANGED = tuple({protocol.OK, other} for other in (protocol.WRONG, protocol.CRASHED, protocol.UNSUPPORTED))


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Something to run on one cell, which is not recorded: `run` gives each record with its place."""

    what: str
    cell: Cell
    run: Callable[[], list[tuple[Path, Outcome]]]


def planned(run: Run, focus: Focus | None = None) -> Planned:
    return plan_experiments(run.load(), run.validations(), run.builds(), focus, list(run.environments()))


def find_slowed(run: Run, focus: Focus) -> list[Profiled]:
    """Return the targets to profile because their times or their memory changed, of those that the user wants."""
    record = run.load()
    return [
        target
        for target in moved_targets(record, list(run.launches()))
        if focus.admits(record, target.kernel, target.workload, target.device)
        and focus.admits_environment(target.environments[1])
    ]


def calls_operators(run: Run, cases: Sequence[Case]) -> list[Profiled]:
    """Return kernels in Python, or with a binding of their own, whose outputs changed, or which end in one environment
    only: which of PyTorch's operators they run in either shows why."""
    problems = run.load().problems
    binding = {(build.kernel, build.device) for build in run.builds() if build.binds_itself}
    status = {cell_id(record): record.status for record in run.validations()}
    return [
        Profiled(
            kernel=case.kernel,
            target=protocol.KERNEL,
            workload=case.workload,
            device=case.device,
            environments=(case.environments[0], cell.environment),
            ratio=1.0,
        )
        for case in cases
        if case.workload in problems or (case.kernel, case.device) in binding
        for cell in case.cells[1:]
        if {status.get(cell_id(case.cells[0])), status.get(cell_id(cell))} in CHANGED
    ]


def unexplained(run: Run) -> bool:
    """Return whether a run's records call for experiments that it does not hold."""
    cases = planned(run).cases
    wanted: list[tuple[Cell, str]] = [
        (cell, name) for case in cases for cell in case.cells for name in (*case.experiments, "history")
    ]
    wanted += [(case.cells[-1], CHECKERS) for case in cases]
    wanted += [(cell, factor.value) for case in cases for factor, cell in case.factor_cells]
    profiled = (*find_slowed(run, Focus()), *calls_operators(run, cases))
    wanted += [(cell, target.experiment) for target in profiled for cell in target.cells]
    return any(not _path(run, cell, name).exists() for cell, name in wanted)


def cell_id(record: Cell | Outcome) -> tuple[str, ...]:
    return tuple(getattr(record, name) for name in ("environment", "kernel", "workload", "device"))


def explain(context: Context, display: Display, focus: Focus) -> int:
    """Run what the records of the context's run call for. Return the number of records."""
    suspects = planned(context.run, focus)
    done = 0
    for note in suspects.notes:
        display.note(f"not explained: {note}")
    for case in suspects.cases:
        case = _keep_built(context, case)
        for reason in case.reasons:
            display.note(f"explaining {case.id}: {reason}")
        done += _run_all(context, display, list_experiments(context, case))
    for target in (*find_slowed(context.run, focus), *calls_operators(context.run, suspects.cases)):
        done += _run_all(context, display, list_profiles(context, target))
    return done


def _run_all(context: Context, display: Display, experiments: Iterable[Experiment]) -> int:
    """Run experiments, each of which leaves its records at once. Return the number of records."""
    done = 0
    for experiment in experiments:
        with context.hold(experiment.cell.device):
            done += run_experiment(context, experiment)
        display.note(f"ran {experiment.what}")
    return done


def run_experiment(context: Context, experiment: Experiment) -> int:
    """Run one experiment and save its records. Return their number."""
    records = experiment.run()
    for path, record in records:
        context.save(path, record)
    return len(records)


def list_experiments(context: Context, case: Case) -> Iterator[Experiment]:
    """Yield everything that a case calls for and the run lacks."""
    run = context.run
    for cell in case.cells:
        if (step := plan_conditions(context, cell, case.experiments, case.trials)) is not None:
            yield step
        inputs = _path(run, cell, "inputs")  # what the first ones gave is recorded by now
        trials = sequences(case, load_record(inputs, ConditionsRecord) if inputs.exists() else None)
        if (step := plan_conditions(context, cell, ["history"], trials)) is not None:
            yield step
    for factor, cell in case.factor_cells:
        one = FactorExperiment(
            context=context, factor=factor, cell=cell, baseline=case.environments[0], failing=case.failing
        )
        if not is_recorded(context, one.path, FactorRecord, one.key):
            yield _make_single(f"{factor.value}: {cell.id}", cell, one.path, one.run)
    # What they look for stands in the source: one environment is enough, the one in which something changed.
    for cell in case.cells[-1:]:
        path = _path(run, cell, CHECKERS)
        if not is_recorded(context, path, CheckersRecord, checkers_key(context, cell)):

            def check(cell: Cell = cell) -> Outcome:
                return run_checkers(context, cell)

            yield _make_single(f"{CHECKERS}: {cell.id}", cell, path, check)


def list_profiles(context: Context, target: Profiled) -> Iterator[Experiment]:
    """Yield what tells where a target's time goes, in both environments."""
    for cell in target.cells:
        if (cell.environment, cell.kernel, cell.device) not in context.builds:
            continue  # an `eval`'s baseline, measured by another run
        path = _path(context.run, cell, target.experiment)
        if not is_recorded(context, path, ProfileRecord, profile_key(context, cell, target.target)):

            def profile(cell: Cell = cell) -> Outcome:
                return run_profile(context, cell, target.target)

            yield _make_single(f"profile of {target.target}: {cell.id}", cell, path, profile)


def _make_single(what: str, cell: Cell, path: Path, make: Callable[[], Outcome]) -> Experiment:
    return Experiment(what=what, cell=cell, run=lambda: [(path, make())])


def plan_conditions(
    context: Context, cell: Cell, experiments: Iterable[ConditionsExperiment], trials: Trials
) -> Experiment | None:
    """Return those of the experiments on a cell that are not recorded, in this run or in another; None for none."""

    def is_known(name: ConditionsExperiment) -> bool:
        key = conditions_key(context, cell, jobs_of(context, cell, [name], trials))
        return is_recorded(context, _path(context.run, cell, name), ConditionsRecord, key)

    missing = [name for name in experiments if not is_known(name)]

    def run() -> list[tuple[Path, Outcome]]:
        records = run_conditions(context, cell, missing, trials)
        return [(_path(context.run, cell, record.experiment), record) for record in records]

    return Experiment(what=f"{', '.join(missing)}: {cell.id}", cell=cell, run=run) if missing else None


def _path(run: Run, cell: Cell, experiment: str) -> Path:
    return run.experiment_path(cell.environment, cell.kernel, cell.device, cell.workload, experiment)


def _keep_built(context: Context, case: Case) -> Case:
    """Return the case without environments that this run did not measure itself: an `eval`'s baseline is stored
    elsewhere."""
    builds = {e: context.builds.get((e, case.kernel, case.device)) for e in case.environments}
    ready = tuple(
        name
        for name, build in builds.items()
        if build is not None and build.status == protocol.OK and context.environment_ok(name)
    )
    has_base = ready[:1] == case.environments[:1]
    return replace(case, environments=ready, factors=case.factors if has_base else {})
