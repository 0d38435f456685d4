"""Experiments on a finished run: what its records call for, and is not recorded yet.

Each step leaves its records at once, so that what was interrupted goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from harness.experiments.checkers import checkers_key, run_checkers
from harness.experiments.conditions import conditions_key, run_conditions
from harness.experiments.jobs import Others, Trials, jobs_of
from harness.experiments.plan import Case, Focus, Planned, is_one_of, is_wanted, plan_experiments, sequences
from harness.experiments.profile import profile_key, run_profile
from harness.experiments.swap import run_swap, swap_inputs, swap_key
from harness.progress import Display
from harness.run.context import Context
from harness.run.memo import is_recorded
from harness.schema.experiment_records import (
    CheckersRecord,
    ConditionsExperiment,
    ConditionsRecord,
    ProfileRecord,
    SwapRecord,
)
from harness.schema.records import Device, Outcome, ValidationRecord
from harness.schema.run_records import Cell
from harness.schema.storage import Run, load_record
from harness.stats.screen import Profiled, moved_targets
from harness.worker import protocol

CHECKERS = "checkers"
AnyExperiment = TypeVar("AnyExperiment", CheckersRecord, ConditionsRecord, ProfileRecord, SwapRecord)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One thing to run, and where what it gives is stored. Nothing is run where all of it is there already."""

    what: str
    device: Device
    run: Callable[[], list[tuple[Path, Outcome]]]


MOVED = tuple({protocol.OK, other} for other in (protocol.WRONG, protocol.CRASHED, protocol.UNSUPPORTED))


def planned(run: Run, focus: Focus | None = None) -> Planned:
    return plan_experiments(run.load(), run.validations(), run.builds(), focus, list(run.environments()))


def slowed(run: Run, focus: Focus) -> list[Profiled]:
    """The targets to profile since their times or their memory moved, of those that the user wants explained."""
    record = run.load()
    return [
        target
        for target in moved_targets(record, list(run.launches()))
        if is_wanted(record, focus, target.kernel, target.workload, target.device)
        and is_one_of(target.environments[1], focus.torches)
    ]


def calls_operators(run: Run, cases: Sequence[Case]) -> list[Profiled]:
    """Kernels in Python, or with a binding of their own, whose outputs moved, or which end in one environment alone:
    which of PyTorch's operators they run in either shows why."""
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
        if {status.get(cell_id(case.cells[0])), status.get(cell_id(cell))} in MOVED
    ]


def unexplained(run: Run) -> bool:
    """Whether a run's records call for experiments that it does not hold."""
    cases = planned(run).cases
    wanted = [
        _path(run, cell, name)
        for case in cases
        for cell in case.cells
        for name in (*case.experiments, "history", *case.others_in(cell.environment))
    ]
    wanted += [_path(run, case.cells[-1], CHECKERS) for case in cases]
    wanted += [run.swap_path(case.kernel, case.device, case.workload) for case in cases if case.machine_code_moved]
    wanted += [
        _path(run, cell, target.experiment)
        for target in (*slowed(run, Focus()), *calls_operators(run, cases))
        for cell in target.cells
    ]
    return any(not path.exists() for path in wanted)


def cell_id(record: Cell | ValidationRecord) -> tuple[str, str, str, Device]:
    return record.environment, record.kernel, record.workload, record.device


def explain(context: Context, display: Display, focus: Focus) -> int:
    """Run what the records of the context's run call for. Returns the number of experiments that were run."""
    suspects = planned(context.run, focus)
    done = 0
    for note in suspects.notes:
        display.note(f"not explained: {note}")
    for case in suspects.cases:
        case = _where_it_was_built(context, case)
        for reason in case.reasons:
            display.note(f"explaining {case.id}: {reason}")
        done += _run(context, display, steps(context, case))
    for target in (*slowed(context.run, focus), *calls_operators(context.run, suspects.cases)):
        done += _run(context, display, profiles(context, target))
    return done


def _run(context: Context, display: Display, steps: Iterable[Step]) -> int:
    """Each leaves its records at once. Returns the number of records."""
    done = 0
    for step in steps:
        with context.hold(step.device):
            for path, record in step.run():
                context.save(path, record)
                done += 1
        display.note(f"ran {step.what}")
    return done


def steps(context: Context, case: Case) -> Iterator[Step]:
    """Everything that a case calls for and the run lacks."""
    run, cells = context.run, case.cells
    for cell in cells:
        if (step := conditions_step(context, cell, case.experiments, case.trials)) is not None:
            yield step
        inputs = _path(run, cell, "inputs")  # what the first ones gave is recorded by now
        trials = sequences(case, load_record(inputs, ConditionsRecord) if inputs.exists() else None)
        others = case.others_in(cell.environment)
        if (step := conditions_step(context, cell, ["history", *others], trials, others)) is not None:
            yield step
    if case.machine_code_moved and len(cells) > 1:
        path = run.swap_path(case.kernel, case.device, case.workload)
        place = case.kernel, case.workload, case.device, case.environments
        info, builds = swap_inputs(context, *place)
        if not is_recorded(context, path, SwapRecord, swap_key(context, builds, info)):
            yield _single(f"swap: {case.id}", case.device, path, partial(run_swap, context, *place))
    # What they look for stands in the source: one environment is enough, the one in which something moved.
    for cell in cells[-1:]:
        path = _path(run, cell, CHECKERS)
        if not is_recorded(context, path, CheckersRecord, checkers_key(context, cell)):
            yield _single(f"{CHECKERS}: {cell.id}", cell.device, path, partial(run_checkers, context, cell))


def profiles(context: Context, target: Profiled) -> Iterator[Step]:
    """Where a target's time goes, in both environments."""
    for cell in target.cells:
        if (cell.environment, cell.kernel, cell.device) not in context.builds:
            continue  # an `eval`'s baseline, measured by another run
        path = _path(context.run, cell, target.experiment)
        if not is_recorded(context, path, ProfileRecord, profile_key(context, cell, target.target)):
            what = f"profile of {target.target}: {cell.id}"
            yield _single(what, target.device, path, partial(run_profile, context, cell, target.target))


def _single(what: str, device: Device, path: Path, make: Callable[[], Outcome]) -> Step:
    return Step(what=what, device=device, run=lambda: [(path, make())])


def conditions_step(
    context: Context,
    cell: Cell,
    experiments: Iterable[ConditionsExperiment],
    trials: Trials,
    others: Others | None = None,
) -> Step | None:
    """Those of the experiments on a cell that are not recorded, in this run or in another; None for none."""

    def is_known(name: ConditionsExperiment) -> bool:
        key = conditions_key(context, cell, jobs_of(context, cell, [name], trials, others))
        return is_recorded(context, _path(context.run, cell, name), ConditionsRecord, key)

    missing = [name for name in experiments if not is_known(name)]

    def run() -> list[tuple[Path, Outcome]]:
        records = run_conditions(context, cell, missing, trials, others)
        return [(_path(context.run, cell, record.experiment), record) for record in records]

    return Step(what=f"{', '.join(missing)}: {cell.id}", device=cell.device, run=run) if missing else None


def _path(run: Run, cell: Cell, experiment: str) -> Path:
    return run.experiment_path(cell.environment, cell.kernel, cell.device, cell.workload, experiment)


def _where_it_was_built(context: Context, case: Case) -> Case:
    """Without environments that this run did not measure itself: an `eval`'s baseline is stored elsewhere."""
    ready = tuple(
        environment
        for environment in case.environments
        if (environment, case.kernel, case.device) in context.builds
        and context.environment_ok(environment)
        and context.builds[environment, case.kernel, case.device].status == protocol.OK
    )
    variables = case.others["variables"]
    tried = {each: tuple(other for other in variables.get(each, ()) if other in ready) for each in ready}
    return replace(case, environments=ready, others={**case.others, "variables": tried})
