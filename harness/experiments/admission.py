"""Which kernels of a run may be timed at all: a wrong one that is fast would win every search.

A kernel is admitted that compiles, is right, gives the same bits again, and does not depend on memory that was never
written: in every environment of the run, on every workload. The rule is a pure function of records. Beyond validation
it needs two of the experiments, `repeat` and `poison`, on cells that validation found nothing wrong with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from harness.experiments.plan import choose_trials, results_of
from harness.experiments.run import Step, conditions_step
from harness.progress import Display
from harness.run.context import Context
from harness.run.validate import run_validations
from harness.schema.environment_records import BuildRecord
from harness.schema.experiment_records import ConditionResult, ConditionsExperiment, ConditionsRecord, Stage
from harness.schema.records import DEVICES, Outcome, ValidationRecord
from harness.schema.run_records import Cell
from harness.schema.storage import Run, load_record
from harness.worker import protocol

EXPERIMENTS: tuple[ConditionsExperiment, ...] = ("repeat", "poison")
TRIALS = 2
NOT_TRIED = (protocol.NOT_RUN, protocol.UNSUPPORTED)


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """What a kernel failed at, first, and where. `message` names the stage's fault in a sentence."""

    stage: Stage
    environment: str
    outcome: Outcome


def refusal(
    builds: Sequence[BuildRecord], validations: Sequence[ValidationRecord], conditions: Sequence[ConditionsRecord]
) -> Refusal | None:
    """Why one kernel is not admitted; None where it is. The records are those of all its cells."""
    for build in builds:
        if build.status != protocol.OK:
            return Refusal(stage="build", environment=build.environment, outcome=_outcome(build, "it does not compile"))
    for validation in validations:
        wavers = _gives_other_bits(validation)
        if validation.status != protocol.OK or wavers:
            stage: Stage = "repeat" if wavers else "correctness"
            outcome = _outcome(validation, "its output is wrong")
            if wavers:
                outcome = replace(outcome, status=protocol.WRONG)
            return Refusal(stage=stage, environment=validation.environment, outcome=outcome)
    for record in sorted(conditions, key=lambda record: EXPERIMENTS.index(record.experiment)):
        if fault := _failed(record) or _other_bits(record):
            stage = "repeat" if record.experiment == "repeat" else "poison"
            return Refusal(stage=stage, environment=record.environment, outcome=fault)
    return None


def untried(conditions: Sequence[ConditionsRecord]) -> list[str]:
    """Conditions that could not be made here, each with the reason: of these nothing is known."""
    reasons = {
        f"{result.condition.label}: {result.message or result.status}": None
        for record in conditions
        for result in record.results
        if result.status in NOT_TRIED
    }
    return list(reasons)


def _outcome(record: Outcome, otherwise: str) -> Outcome:
    return Outcome(status=record.status, message=record.message or otherwise, log_excerpt=record.log_excerpt)


def _gives_other_bits(record: ValidationRecord) -> bool:
    """Whether the same call gave other bits, and all are right. Elsewhere that is a property; a search refuses it,
    for among so many settings a race that leaves the rule now and then cannot be told from another order of sums."""
    results = list(results_of(record).values())
    whole = all(a.passed.get(record.decides) == r.trials for r, target in results for a in target.against[:1])
    faults = any(target.inputs_mutated or target.unwritten_trials for _, target in results)
    return whole and not faults and any(target.repeats_differ for _, target in results)


def _failed(record: ConditionsRecord) -> Outcome | None:
    """An experiment that was lost as a whole, or a run that is not right."""
    if record.status != protocol.OK:
        return _outcome(record, f"the {record.experiment} experiment could not be made")
    tried = [result for result in record.results if result.status not in NOT_TRIED]
    if not tried:
        why = next((result.message for result in record.results if result.message), "it has no condition")
        return Outcome(status="not_run", message=f"the {record.experiment} experiment could not be made: {why}")
    bad = next((result for result in tried if result.status != protocol.OK), None)
    if bad is None:
        return None
    why = bad.message or f"{bad.passed} of {bad.runs} runs pass"
    return Outcome(status=bad.status, message=f"{bad.condition.label}: {why}", log_excerpt=bad.log_excerpt)


def _other_bits(record: ConditionsRecord) -> Outcome | None:
    """A call that gave other bits when it was made again, or, of `poison`, with another pattern at the same place."""
    first: dict[str, ConditionResult] = {}
    for result in (result for result in record.results if result.runs and result.output_sha256):
        label = result.condition.label
        expected = first.setdefault(result.condition.site, result) if record.experiment == "poison" else result
        for seen, right in zip(result.output_sha256, expected.output_sha256, strict=False):
            if record.experiment == "poison" and set(seen) != {right[0]}:
                message = f"other bits with {label} than with {expected.condition.label}"
                return Outcome(status="wrong", message=message)
            if len(set(seen)) > 1:
                return Outcome(
                    status="wrong", message=f"{label}: {len(set(seen))} different outputs in {len(seen)} runs"
                )
    return None


# -- over a run -------------------------------------------------------------------------------------------------


def records_of(
    run: Run, cells: Sequence[Cell], kernel: str
) -> tuple[list[BuildRecord], list[ValidationRecord], list[ConditionsRecord]]:
    """What a run holds of one kernel's cells, in their order."""
    own = [cell for cell in cells if cell.kernel == kernel]
    places = dict.fromkeys(run.build_path(cell.environment, cell.kernel, cell.device) for cell in own)
    tried = [
        path
        for cell in own
        for name in EXPERIMENTS
        if (path := run.experiment_path(cell.environment, cell.kernel, cell.device, cell.workload, name)).exists()
    ]
    return (
        [load_record(path, BuildRecord) for path in places],
        [load_record(run.validation_path(cell), ValidationRecord) for cell in own],
        [load_record(path, ConditionsRecord) for path in tried],
    )


def refusals(run: Run, cells: Sequence[Cell]) -> dict[str, Refusal]:
    """By kernel, those that may not be timed."""
    by_kernel = {kernel: refusal(*records_of(run, cells, kernel)) for kernel in dict.fromkeys(c.kernel for c in cells)}
    return {kernel: refused for kernel, refused in by_kernel.items() if refused is not None}


def admit(context: Context, display: Display) -> dict[str, Refusal]:
    """By kernel, those that may not be timed, after the experiments that this takes."""
    run, cells = context.run, context.plan.cells
    for device in DEVICES:
        steps, refused = [], refusals(run, cells)
        for cell in (cell for cell in cells if cell.device == device and cell.kernel not in refused):
            validation = load_record(run.validation_path(cell), ValidationRecord)
            recipes = (*protocol.RECIPES, *protocol.EXTRA_RECIPES)
            trials = {recipe: choose_trials(recipe, [validation], TRIALS) for recipe in recipes}
            steps.append(conditions_step(context, cell, EXPERIMENTS, trials))
        calls = [partial(_make, context, display, step) for step in steps if step is not None]
        run_validations(context, device, calls)
    refused = refusals(run, cells)
    for kernel, why in refused.items():
        display.note(f"not timed: {kernel}: {why.stage} in {why.environment}: {why.outcome.message}")
    return refused


def _make(context: Context, display: Display, step: Step) -> None:
    for path, record in step.run():
        context.save(path, record)
    display.note(f"tried {step.what}")
