"""Jobs: what becomes of a list of conditions, which share a process, and what their results are together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.experiments.condition_list import SAME_CALLS, conditions_of, size_conditions
from harness.run.context import Context
from harness.schema.experiment_records import Condition, ConditionResult, ConditionsExperiment
from harness.schema.run_records import Cell
from harness.worker import protocol, wire

REPEATS = 2
PATIENCE_S = {"repeat": 4.0, "others": 1.0}  # after which a condition of a slow kernel is left with the calls it had
FRESH_TRIALS = 2  # each a process
MOST_BYTES = 256 << 20  # of outputs that are kept until they are weighed
Trials = Mapping[str, tuple[int, ...]]  # of each recipe


@dataclass(frozen=True, kw_only=True)
class Job:
    """One condition on some trials, in one process."""

    number: int
    experiment: ConditionsExperiment
    condition: Condition
    trials: tuple[int, ...]
    repeats: int
    output_bytes: int

    @property
    def alone(self) -> bool:
        """Return whether it must be the first thing that its process does, or its kernel is made otherwise for good."""
        return self.condition.before == "fresh" or bool(self.condition.dtype)

    @property
    def bytes(self) -> int:
        return len(self.trials) * self.repeats * self.output_bytes

    def request(self) -> wire.JobRequest:
        return wire.JobRequest(
            number=self.number,
            condition=self.condition,
            trials=list(self.trials),
            repeats=self.repeats,
            patience_s=PATIENCE_S["repeat" if self.experiment == "repeat" else "others"],
        )


def jobs_of(
    context: Context,
    cell: Cell,
    experiments: Sequence[ConditionsExperiment],
    trials: Trials,
) -> list[Job]:
    """Return the jobs of experiments on a cell. `trials` by recipe: sequences of calls are of all of these."""
    workload = context.plan.workload(cell.workload)
    references = context.plan.kernel(cell.kernel).references_on(cell.device)
    listed = [
        (experiment, condition)
        for experiment in experiments
        for condition in conditions_of(
            experiment,
            cell.device,
            references,
            problem=workload.problem is not None,
            recipes=tuple(trials),
            sizes=size_conditions(workload) if experiment == "lengths" else (),
        )
    ]
    output_bytes = int((workload.bytes or 4 << 20) / (2 if workload.backward else 4))
    return plan_jobs(listed, trials, output_bytes)


def plan_jobs(
    listed: Iterable[tuple[ConditionsExperiment, Condition]], trials: Mapping[str, tuple[int, ...]], output_bytes: int
) -> list[Job]:
    """Jobs of an experiment's conditions. `trials` are by recipe; what must be first in a process comes last."""
    jobs: list[Job] = []
    for experiment, condition in listed:
        chosen, repeats = trials[condition.recipe], REPEATS
        together = [chosen]
        if experiment == "repeat":
            together, repeats = [chosen[:1]], max(REPEATS, min(SAME_CALLS, MOST_BYTES // max(1, output_bytes)))
        elif experiment == "lengths":
            together, repeats = [chosen[:1]], 1
        elif experiment == "predecessor" and condition.before == "fresh":
            together, repeats = [(trial,) for trial in chosen[:FRESH_TRIALS]], 1
        jobs += [
            Job(
                number=number,
                experiment=experiment,
                condition=condition,
                trials=each,
                repeats=repeats,
                output_bytes=output_bytes,
            )
            for number, each in enumerate(together, len(jobs))
        ]
    return jobs


def in_processes(jobs: Sequence[Job]) -> Iterator[list[Job]]:
    """Jobs that share a process, so that what one process leaves stays within bounds; those that fill the heap last,
    apart from others, since their process is started with another allocator."""
    for heap in (False, True):
        shared: list[Job] = []
        for job in (job for job in jobs if (job.condition.site == "heap") == heap):
            if job.alone:
                yield [job]
            elif shared and sum(other.bytes for other in shared) + job.bytes > MOST_BYTES:
                yield shared
                shared = [job]
            else:
                shared.append(job)
        if shared:
            yield shared


def merge(condition: Condition, results: Sequence[ConditionResult]) -> ConditionResult:
    """The result of a condition whose trials ran in several processes. A failure hides what is wrong, and that what
    is right."""
    failed = next((r for r in results if r.status not in (protocol.OK, protocol.WRONG)), None)
    worst = failed or next((r for r in results if r.status == protocol.WRONG), results[0])
    scales = [r.scales for r in results if r.scales is not None]
    message = worst.message
    if worst.status == protocol.WRONG and len(results) > 1:
        message = f"{sum(r.passed for r in results)} of {sum(r.runs for r in results)} runs pass"
    return ConditionResult(
        condition=condition,
        status=worst.status,
        message=message,
        log_excerpt=worst.log_excerpt,
        failure=worst.failure,
        runs=sum(r.runs for r in results),
        passed=sum(r.passed for r in results),
        nonfinite=sum(r.nonfinite for r in results),
        max_units=max((r.max_units for r in results if r.max_units is not None), default=None),
        apart_units=max((r.apart_units for r in results if r.apart_units is not None), default=None),
        output_sha256=[digests for r in results for digests in r.output_sha256],
        input_sha256=[digest for r in results for digest in r.input_sha256],
        within=[verdicts for r in results for verdicts in r.within],
        scales=all(scales) if scales else None,
    )
