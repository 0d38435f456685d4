"""Which kernels of a sweep may be timed at all: a wrong one that is fast would win every search.

A kernel is admitted that compiles, is correct, gives the same bits again, and does not depend on memory that was never
written: in every environment of the run, on every workload. Beyond validation that takes two experiments, `repeat` and
`poison`, on cells that validation found nothing wrong with.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from harness.experiments.plan import choose_trials, results_of
from harness.experiments.run import Experiment, plan_conditions, run_experiment
from harness.progress import Display
from harness.run.context import Context
from harness.run.validate import run_validations
from harness.schema.environment_records import BuildRecord
from harness.schema.experiment_records import ConditionResult, ConditionsExperiment, ConditionsRecord
from harness.schema.records import DEVICES, LaunchRecord, ValidationRecord
from harness.schema.run_records import Cell
from harness.schema.storage import Run, load_record
from harness.worker import protocol

EXPERIMENTS: tuple[ConditionsExperiment, ...] = ("repeat", "poison")
TRIALS = 2
NOT_TRIED = (protocol.NOT_RUN, protocol.UNSUPPORTED)
Faulty = BuildRecord | ValidationRecord | ConditionsRecord | LaunchRecord


def find_refusals(run: Run) -> dict[str, str]:
    """Return, by kernel, why its time does not count; kernels that nothing speaks against are absent."""
    found: dict[str, str] = {}
    for record, stage, message in _list_faults(run):
        found.setdefault(record.kernel, f"{stage} in {record.environment}: {message}")
    return found


def _list_faults(run: Run) -> Iterator[tuple[Faulty, str, str]]:
    for build in run.builds():
        if build.status != protocol.OK:
            yield build, "build", build.message
    for validation in run.validations():
        if validation.status != protocol.OK:
            yield validation, "correctness", validation.message
        elif any(target.repeats_differ for _, target in results_of(validation).values()):
            yield validation, "repeat", "other bits when run again"
    for experiment in sorted(
        run.experiments(ConditionsRecord), key=lambda record: EXPERIMENTS.index(record.experiment)
    ):
        if fault := find_fault(experiment):
            yield experiment, experiment.experiment, fault
    for launch in run.launches():
        for outcome in (launch, *launch.timings):
            if outcome.status != protocol.OK or getattr(outcome, "correct", None) is False:
                yield launch, "time", outcome.message or "its output was not the validated one"


def find_fault(record: ConditionsRecord) -> str:
    """Return what an experiment shows against a kernel: it was lost, a run is incorrect, or bits differ; else ''."""
    tried = [result for result in record.results if result.status not in NOT_TRIED]
    if record.status != protocol.OK or not tried:
        reasons = [record.message, *(result.message for result in record.results)]
        return f"the experiment could not be made: {next(filter(None, reasons), record.status)}"
    first: dict[str, ConditionResult] = {}
    for result in tried:
        label = result.condition.label
        if result.status != protocol.OK:
            return f"{label}: {result.message or f'{result.passed} of {result.runs} runs pass'}"
        # Whatever poison was at one place, the bits are the same.
        same = first.setdefault(result.condition.site, result) if record.experiment == "poison" else result
        for bits, expected in zip(result.output_sha256, same.output_sha256, strict=False):
            if set(bits) != {expected[0]}:
                return f"{label}: {len({*bits, expected[0]})} different outputs in {len(bits)} runs"
    return ""


def admit(context: Context, display: Display) -> dict[str, str]:
    """Make the experiments, and return, by kernel, why it may not be timed."""
    for device in DEVICES:
        refused = find_refusals(context.run)
        cells = [cell for cell in context.plan.cells if cell.device == device and cell.kernel not in refused]
        steps = [step for cell in cells if (step := _plan_step(context, cell)) is not None]
        run_validations(context, device, [partial(_make, context, display, step) for step in steps])
    refused = find_refusals(context.run)
    for kernel, why in refused.items():
        display.note(f"not timed: {kernel}: {why}")
    return refused


def _plan_step(context: Context, cell: Cell) -> Experiment | None:
    validation = load_record(context.run.validation_path(cell), ValidationRecord)
    recipes = (*protocol.RECIPES, *protocol.EXTRA_RECIPES)
    trials = {recipe: choose_trials(recipe, [validation], TRIALS) for recipe in recipes}
    return plan_conditions(context, cell, EXPERIMENTS, trials)


def _make(context: Context, display: Display, experiment: Experiment) -> None:
    run_experiment(context, experiment)
    display.note(f"tried {experiment.what}")
