"""Which kernels of a sweep may be timed at all: a wrong one that is fast would win every search.

A kernel is admitted that compiles, is correct, gives the same bits again, and does not depend on memory that was never
written: in every environment of the run, on every workload. Beyond validation that takes two experiments, `repeat` and
`poison`, on cells that validation found nothing wrong with.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from harness.experiments.conditions import ConditionsRun, run_together
from harness.experiments.plan import choose_trials, results_of
from harness.progress import Display
from harness.run.context import Context
from harness.run.validate import run_validations
from harness.schema.experiment_records import ConditionResult, ConditionsExperiment, ConditionsRecord
from harness.schema.records import DEVICES, ValidationRecord
from harness.schema.run_records import Cell
from harness.schema.storage import Run, load_record
from harness.worker import protocol

EXPERIMENTS: tuple[ConditionsExperiment, ...] = ("repeat", "poison")
TRIALS = 2
NOT_TRIED = (protocol.NOT_RUN, protocol.UNSUPPORTED)


def find_refusals(run: Run) -> dict[str, str]:
    """Return, by kernel, why its time does not count; kernels that nothing speaks against are absent."""
    faults: list[tuple[Any, str, str]] = [
        (build, "build", build.message) for build in run.builds() if build.status != protocol.OK
    ]
    for validation in run.validations():
        differs = any(target.repeats_differ for _, target in results_of(validation).values())
        if validation.status != protocol.OK:
            faults.append((validation, "correctness", validation.message))
        elif differs:
            faults.append((validation, "repeat", "other bits when run again"))
    for name in EXPERIMENTS:
        made = (record for record in run.experiments(ConditionsRecord) if record.experiment == name)
        faults += [(record, name, fault) for record in made if (fault := find_fault(record))]
    for launch in run.launches():
        for outcome in (launch, *launch.timings):
            if outcome.status != protocol.OK or getattr(outcome, "correct", None) is False:
                faults.append((launch, "time", outcome.message or "its output was not the validated one"))
    refused: dict[str, str] = {}
    for record, stage, message in faults:
        refused.setdefault(record.kernel, f"{stage} in {record.environment}: {message}")
    return refused


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
        run_validations(context, device, [partial(_try, context, display, cell) for cell in cells])
    refused = find_refusals(context.run)
    for kernel, why in refused.items():
        display.note(f"not timed: {kernel}: {why}")
    return refused


def _try(context: Context, display: Display, cell: Cell) -> None:
    validation = load_record(context.run.validation_path(cell), ValidationRecord)
    recipes = (*protocol.RECIPES, *protocol.EXTRA_RECIPES)
    trials = {recipe: choose_trials(recipe, [validation], TRIALS) for recipe in recipes}
    runs = [ConditionsRun(context=context, cell=cell, experiment=name, trials=trials) for name in EXPERIMENTS]
    missing = [run for run in runs if not run.is_recorded]
    if missing:
        run_together(missing)
        display.note(f"tried {', '.join(run.name for run in missing)}: {cell.id}")
