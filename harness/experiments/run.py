"""Experiments on a finished run: what its records call for, and is not recorded yet.

Each step leaves its records at once, so that what was interrupted goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from harness.errors import RecordError
from harness.experiments.checkers import checkers_key, run_checkers
from harness.experiments.conditions import conditions_key, jobs_of, run_conditions
from harness.experiments.counters import COUNTERS, counters_key, run_counters
from harness.experiments.jobs import Job
from harness.experiments.plan import (
    AFTERWARDS,
    Case,
    Focus,
    Planned,
    is_one_of,
    is_wanted,
    plan_experiments,
    sequences,
)
from harness.experiments.profile import profile_key, run_profile
from harness.experiments.screen import Profiled, moved_targets
from harness.experiments.swap import run_swap, swap_key, swapped
from harness.progress import Display
from harness.run.context import Context
from harness.run.folders import stored
from harness.schema.experiment_records import (
    CheckersRecord,
    ConditionsExperiment,
    ConditionsRecord,
    CountersRecord,
    ProfileRecord,
    SwapRecord,
)
from harness.schema.records import Device, Record, ValidationRecord
from harness.schema.run_records import Cell
from harness.schema.storage import Run, load_record
from harness.worker import protocol

CHECKERS = "checkers"
AnyExperiment = TypeVar("AnyExperiment", CheckersRecord, ConditionsRecord, CountersRecord, ProfileRecord, SwapRecord)
Hold = Callable[[Device], AbstractContextManager[None]]
Save = Callable[[Path, Record], Record]


@dataclass(frozen=True, kw_only=True)
class Step:
    """One thing to run, and where what it gives is stored. Nothing is run where all of it is there already."""

    what: str
    device: Device
    run: Callable[[], list[tuple[Path, Record]]]


MOVED = tuple({protocol.OK, other} for other in (protocol.WRONG, protocol.CRASHED, protocol.UNSUPPORTED))


def planned(run: Run, focus: Focus | None = None) -> Planned:
    variables = {record.id: record.variables for record in run.environments()}
    return plan_experiments(run.load(), run.validations(), run.builds(), focus, variables)


def slowed(run: Run, focus: Focus) -> list[Profiled]:
    """The targets to profile, of those that the user wants explained."""
    record = run.load()
    return [
        each
        for each in moved_targets(record, list(run.launches()))
        if is_wanted(record, focus, each.kernel, each.workload, each.device)
        and is_one_of(each.environments[1], focus.torches)
    ]


def composed(run: Run, cases: Sequence[Case]) -> list[Profiled]:
    """Kernels in Python, or with a binding of their own, whose outputs moved, or which end in one environment alone:
    which of PyTorch's operators they run in either tells why."""
    problems = run.load().problems
    binding = {(build.kernel, build.device) for build in run.builds() if build.binds_itself}
    status = {cell_id(record): record.status for record in run.validations()}
    found = []
    for case in cases:
        base, *others = case.cells
        for cell in others:
            judged = {status.get(cell_id(base)), status.get(cell_id(cell))}
            calls_operators = case.workload in problems or (case.kernel, case.device) in binding
            if calls_operators and judged in MOVED:
                found.append(
                    Profiled(
                        kernel=case.kernel,
                        target=protocol.KERNEL,
                        workload=case.workload,
                        device=case.device,
                        environments=(base.environment, cell.environment),
                        ratio=1.0,
                    )
                )
    return found


def unexplained(run: Run) -> bool:
    """Whether a run's records call for experiments that it does not hold."""
    cases = planned(run).cases
    wanted = [
        _path(run, cell, name)
        for case in cases
        for cell in case.cells
        for name in (*case.experiments, *_afterwards(case, cell))
    ]
    wanted += [_path(run, case.cells[-1], CHECKERS) for case in cases]
    wanted += [run.swap_path(case.kernel, case.device, case.workload) for case in cases if case.machine_code_moved]
    wanted += [
        _path(run, cell, _profile(each))
        for each in (*slowed(run, Focus()), *composed(run, cases))
        for cell in each.cells
    ]
    return any(not path.exists() for path in wanted)


def uncounted(run: Run) -> list[Cell]:
    """The cells whose hardware counters are asked for and missing: of kernels that were called on a GPU and came back.

    What could not be counted is tried again: a missing tool may be there by now.
    """
    called = {
        cell_id(record) for record in run.validations() if record.device == "cuda" and record.status in protocol.RAN
    }
    known = {cell_id(record) for record in run.counters() if record.status != protocol.NOT_RUN}
    return [cell for cell in run.load().cells if cell_id(cell) in called - known]


def cell_id(record: Cell | CountersRecord | ValidationRecord) -> tuple[str, str, str, Device]:
    return record.environment, record.kernel, record.workload, record.device


def count(context: Context, display: Display, *, hold: Hold, save: Save) -> int:
    """Collect the counters that the run lacks, one cell at a time. Returns how many were asked for."""

    def missing() -> Iterator[Step]:
        for cell in uncounted(context.run):
            path = _path(context.run, cell, COUNTERS)
            here = (cell.environment, cell.kernel, cell.device) in context.builds
            if here and not _elsewhere(context, path, CountersRecord, counters_key(context, cell)):
                yield _single(f"{COUNTERS}: {cell.id}", cell.device, path, partial(run_counters, context, cell))

    return _run(missing(), display, hold, save)


def explain(context: Context, display: Display, focus: Focus, *, hold: Hold, save: Save) -> int:
    """Run what the records of the context's run call for. Returns the number of experiments that were run."""
    known = planned(context.run, focus)
    done = 0
    for note in known.notes:
        display.note(f"not explained: {note}")
    for case in known.cases:
        case = _where_it_was_built(context, case)
        for reason in case.reasons:
            display.note(f"explaining {case.id}: {reason}")
        done += _run(steps(context, case), display, hold, save)
    for each in (*slowed(context.run, focus), *composed(context.run, known.cases)):
        done += _run(profiles(context, each), display, hold, save)
    return done


def _run(steps: Iterator[Step], display: Display, hold: Hold, save: Save) -> int:
    """Each leaves its records at once. Returns the number of records."""
    done = 0
    for step in steps:
        with hold(step.device):
            for path, record in step.run():
                save(path, record)
                done += 1
        display.note(f"ran {step.what}")
    return done


def steps(context: Context, case: Case) -> Iterator[Step]:
    """Everything that a case calls for and the run lacks."""
    for cell in case.cells:
        missing = missing_conditions(context, case, cell)
        if missing:
            yield Step(
                what=f"{', '.join(missing)}: {cell.id}",
                device=cell.device,
                run=partial(run_missing, context, case, cell, missing),
            )
        later = _later(context, case, cell)  # what the first ones found is recorded by now
        if later is not None:
            yield later
    run, cells = context.run, case.cells
    if case.machine_code_moved and len(cells) > 1:
        path = run.swap_path(case.kernel, case.device, case.workload)
        place = case.kernel, case.workload, case.device, case.environments
        info, builds = swapped(context, *place)
        if not _found(context, path, SwapRecord, swap_key(context, builds, info)):
            yield _single(f"swap: {case.id}", case.device, path, partial(run_swap, context, *place))
    # What they look for stands in the source: one environment is enough, the one in which something moved.
    for cell in cells[-1:]:
        path = _path(run, cell, CHECKERS)
        if not _found(context, path, CheckersRecord, checkers_key(context, cell)):
            yield _single(f"{CHECKERS}: {cell.id}", cell.device, path, partial(run_checkers, context, cell))


def profiles(context: Context, each: Profiled) -> Iterator[Step]:
    """Where a target's time goes, in both environments."""
    for cell in each.cells:
        if (cell.environment, cell.kernel, cell.device) not in context.builds:
            continue  # an `eval`'s baseline, measured by another run
        path = _path(context.run, cell, _profile(each))
        if not _found(context, path, ProfileRecord, profile_key(context, cell, each.target)):
            what = f"profile of {each.target}: {cell.id}"
            yield _single(what, each.device, path, partial(run_profile, context, cell, each.target))


def _profile(each: Profiled) -> str:
    return f"profile-{each.target}"


def _single(what: str, device: Device, path: Path, make: Callable[[], Record]) -> Step:
    return Step(what=what, device=device, run=lambda: [(path, make())])


def missing_conditions(context: Context, case: Case, cell: Cell) -> list[ConditionsExperiment]:
    """Those of a case's experiments on a cell that are not recorded, in this run or in another."""
    return [
        name
        for name in case.experiments
        if not _recorded(context, cell, name, jobs_of(context, cell, [name], case.trials))
    ]


def _afterwards(case: Case, cell: Cell) -> list[ConditionsExperiment]:
    """Those that are made of what failed: of variables where others have other ones."""
    return [name for name in AFTERWARDS if name != "variables" or case.other_variables.get(cell.environment)]


def _later(context: Context, case: Case, cell: Cell) -> Step | None:
    """The experiments on what failed in validation and in the experiment on inputs, where they are not recorded."""
    path = _path(context.run, cell, "inputs")
    trials = sequences(case, load_record(path, ConditionsRecord) if path.exists() else None)
    others = case.other_variables.get(cell.environment, ())
    missing = [
        name
        for name in _afterwards(case, cell)
        if not _recorded(context, cell, name, jobs_of(context, cell, [name], trials, others))
    ]
    if not missing:
        return None

    def run() -> list[tuple[Path, Record]]:
        records = run_conditions(context, cell, missing, trials, others)
        return [(_path(context.run, cell, record.experiment), record) for record in records]

    return Step(what=f"{', '.join(missing)}: {cell.id}", device=cell.device, run=run)


def run_missing(
    context: Context, case: Case, cell: Cell, missing: list[ConditionsExperiment]
) -> list[tuple[Path, Record]]:
    return [
        (_path(context.run, cell, record.experiment), record)
        for record in run_conditions(context, cell, missing, case.trials)
    ]


def _path(run: Run, cell: Cell, experiment: str) -> Path:
    return run.experiment_path(cell.environment, cell.kernel, cell.device, cell.workload, experiment)


def _recorded(context: Context, cell: Cell, experiment: ConditionsExperiment, jobs: list[Job]) -> bool:
    key = conditions_key(context, cell, jobs)
    return _found(context, _path(context.run, cell, experiment), ConditionsRecord, key)


def _found(context: Context, path: Path, model: type[AnyExperiment], key: str) -> bool:
    """Whether this run holds the record, or another one that is copied here."""
    if path.exists():
        try:
            if load_record(path, model).key == key:
                return True
        except RecordError:  # damaged: it is made again
            return False
    return _elsewhere(context, path, model, key)


def _elsewhere(context: Context, path: Path, model: type[AnyExperiment], key: str) -> bool:
    """Whether another run holds the record, which is then copied here."""
    for _, record in stored(context.root, path.relative_to(context.run.folder), model, key):
        if record.status == protocol.OK:
            context.save(path, record)
            return True
    return False


def _where_it_was_built(context: Context, case: Case) -> Case:
    """Without environments that this run did not measure itself: an `eval`'s baseline is stored elsewhere."""
    ready = tuple(
        environment
        for environment in case.environments
        if (environment, case.kernel, case.device) in context.builds
        and context.environment_ok(environment)
        and context.builds[environment, case.kernel, case.device].status == protocol.OK
    )
    tried = {each: tuple(other for other in case.other_variables.get(each, ()) if other in ready) for each in ready}
    return replace(case, environments=ready, other_variables=tried)
