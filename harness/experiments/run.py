"""Experiments on a finished run: what its records call for, and is not recorded yet.

Each experiment leaves its record at once, so what was interrupted goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from harness.experiments.base import CellExperiment, path_of
from harness.experiments.checkers import CheckersExperiment
from harness.experiments.conditions import ConditionsRun, run_together
from harness.experiments.factors import FactorExperiment
from harness.experiments.plan import Case, Focus, Planned, plan_experiments, sequences
from harness.experiments.profile import ProfileExperiment
from harness.progress import Display
from harness.run.context import Context
from harness.schema.experiment_records import ConditionsRecord
from harness.schema.records import Outcome
from harness.schema.run_records import Cell
from harness.schema.storage import Run, load_record
from harness.stats.screen import Profiled, moved_targets
from harness.worker import protocol

CHANGED = tuple({protocol.OK, other} for other in (protocol.WRONG, protocol.CRASHED, protocol.UNSUPPORTED))


def planned(run: Run, focus: Focus | None = None) -> Planned:
    """Return the cases of a run's records."""
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
    wanted: list[tuple[Cell, str]] = []
    for case in cases:
        wanted += [(cell, name) for cell in case.cells for name in (*case.experiments, "history")]
        wanted += [(cell, factor.value) for factor, cell in case.factor_cells]
        wanted.append((case.cells[-1], CheckersExperiment.name))
    for target in (*find_slowed(run, Focus()), *calls_operators(run, cases)):
        wanted += [(cell, target.experiment) for cell in target.cells]
    return any(not path_of(run, cell, name).exists() for cell, name in wanted)


def cell_id(record: Cell | Outcome) -> tuple[str, ...]:
    """Return what a record is of."""
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
        for experiments in list_experiments(context, case):
            done += _run(display, experiments)
    for target in (*find_slowed(context.run, focus), *calls_operators(context.run, suspects.cases)):
        for cell in target.cells:
            if (cell.environment, cell.kernel, cell.device) in context.builds:  # no `eval`'s baseline
                done += _run(display, [ProfileExperiment(context=context, cell=cell, target=target.target)])
    return done


def _run(display: Display, experiments: Sequence[CellExperiment]) -> int:
    """Run those experiments on a cell that are not recorded. Return the number of records that were made."""
    missing = [experiment for experiment in experiments if not experiment.is_recorded]
    conditions = [experiment for experiment in missing if isinstance(experiment, ConditionsRun)]
    if missing:
        with missing[0].context.hold(missing[0].cell.device):
            if conditions:
                run_together(conditions)
            else:
                missing[0].run()
        display.note(f"ran {', '.join(experiment.name for experiment in missing)}: {missing[0].cell.id}")
    return len(missing)


def list_experiments(context: Context, case: Case) -> Iterator[Sequence[CellExperiment]]:
    """Yield everything that a case calls for: conditions on a cell together, all else one by one."""
    for cell in case.cells:
        yield [
            ConditionsRun(context=context, cell=cell, experiment=name, trials=case.trials) for name in case.experiments
        ]
        inputs = path_of(context.run, cell, "inputs")  # what the first ones gave is recorded by now
        trials = sequences(case, load_record(inputs, ConditionsRecord) if inputs.exists() else None)
        yield [ConditionsRun(context=context, cell=cell, experiment="history", trials=trials)]
    base = case.environments[0] if case.environments else ""
    for factor, cell in case.factor_cells:
        yield [FactorExperiment(context=context, factor=factor, cell=cell, baseline=base, failing=case.failing)]
    # What they look for stands in the source: one environment is enough, the one in which something changed.
    for cell in case.cells[-1:]:
        yield [CheckersExperiment(context=context, cell=cell)]


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
