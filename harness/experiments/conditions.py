"""The experiments that run the kernel under changed conditions: poison, call order, inputs, repeat.

A process runs one job after another until it ends; what a crash took with it is known by what is missing, and the rest
goes on in a fresh one. Then a process that never loads the kernel weighs what was left.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from harness.executors import Answer, Task
from harness.experiments.base import CellExperiment
from harness.experiments.condition_list import SAME_CALLS, conditions_of, size_conditions, sized
from harness.experiments.probes import FOLDER, SOURCES, build_probe
from harness.run.context import Context, answer_of, checked, failure, fields_of
from harness.run.device import check_device
from harness.run.requests import files_of, kernel_request, workload_request
from harness.schema.experiment_records import Condition, ConditionResult, ConditionsExperiment, ConditionsRecord
from harness.schema.records import Outcome
from harness.schema.run_records import Cell
from harness.stats.shrink import MOST_ROUNDS, MOST_TRIED, own_sizes, points_of, shrink
from harness.worker import codec, protocol, wire

MOST_ENDS = 4  # processes that die one after the other before the rest is given up
MOST_ENDS_BY_SIZE = 16  # the same where their sizes differ: at some it may crash, and at others not
MOST_HANGS = 2  # each costs its whole time limit
TIMEOUT_S = 300.0
TUNABLES = "GLIBC_TUNABLES"
REPEATS = 2
PATIENCE_S = {"repeat": 4.0, "others": 1.0}  # after which a condition of a slow kernel is left with the calls it had
MOST_BYTES = 256 << 20  # of outputs that are kept until they are weighed
Trials = Mapping[str, tuple[int, ...]]  # of each recipe


@dataclass(frozen=True, kw_only=True)
class Job:
    """One condition on some trials."""

    number: int
    experiment: ConditionsExperiment
    condition: Condition
    trials: tuple[int, ...]
    repeats: int
    output_bytes: int

    @property
    def needs_process(self) -> bool:
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


def plan_jobs(
    experiment: ConditionsExperiment, conditions: Sequence[Condition], trials: Trials, output_bytes: int
) -> list[Job]:
    """Return a job for each of an experiment's conditions. `trials`: by recipe."""
    jobs = []
    for number, condition in enumerate(conditions):
        chosen, repeats = trials[condition.recipe], REPEATS
        if experiment == "repeat":
            chosen, repeats = chosen[:1], max(REPEATS, min(SAME_CALLS, MOST_BYTES // max(1, output_bytes)))
        elif experiment == "lengths" or (experiment == "predecessor" and condition.before == "fresh"):
            chosen, repeats = chosen[:1], 1
        jobs.append(
            Job(
                number=number,
                experiment=experiment,
                condition=condition,
                trials=chosen,
                repeats=repeats,
                output_bytes=output_bytes,
            )
        )
    return jobs


def in_processes(jobs: Sequence[Job]) -> Iterator[list[Job]]:
    """Yield jobs that share a process, so that what one process leaves stays within bounds; those that fill the heap
    last, apart from others, since their process is started with another allocator."""
    for heap in (False, True):
        shared: list[Job] = []
        for job in (job for job in jobs if (job.condition.site == "heap") == heap):
            if job.needs_process:
                yield [job]
            elif shared and sum(other.bytes for other in shared) + job.bytes > MOST_BYTES:
                yield shared
                shared = [job]
            else:
                shared.append(job)
        if shared:
            yield shared


@dataclass(frozen=True, kw_only=True)
class ConditionsRun(CellExperiment):
    """An experiment's conditions on a cell. Sequences of calls are of all `trials`, which are by recipe. `session`: one
    that was played and has its jobs among others."""

    experiment: ConditionsExperiment
    trials: Trials
    session: Session | None = None
    record = ConditionsRecord

    @property
    def name(self) -> str:
        return self.experiment

    @property
    def jobs(self) -> list[Job]:
        cell, plan = self.cell, self.context.plan
        workload = plan.workload(cell.workload)
        conditions = conditions_of(
            self.experiment,
            cell.device,
            plan.kernel(cell.kernel).references_on(cell.device),
            problem=workload.problem is not None,
            recipes=tuple(self.trials),
            sizes=size_conditions(workload) if self.experiment == "lengths" else (),
        )
        output_bytes = int((workload.bytes or 4 << 20) / (2 if workload.backward else 4))
        return plan_jobs(self.experiment, conditions, self.trials, output_bytes)

    @property
    def key(self) -> str:
        asked = [
            [[asdict(job.condition), list(job.trials), job.repeats] for job in self.jobs],
            [protocol.sha256_file(str(FOLDER / source)) for source in SOURCES.values()],
        ]
        return self.context.key("conditions", **vars(self.cell), asked=asked)

    def measure(self) -> dict[str, Any]:
        session = self.session or Session.play(self.context, self.cell, self.jobs)
        outcome = session.stopped or Outcome(status=protocol.OK)
        results = [session.results[job.number] for job in session.jobs if job.experiment == self.experiment]
        fields = {"experiment": self.experiment, "results": results, "duration_s": round(session.duration_s, 3)}
        return vars(outcome) | fields


def run_together(runs: Sequence[ConditionsRun]) -> None:
    """Run several experiments on one cell in as few processes as they leave alive, since starting PyTorch costs more
    than most of them, and save their records."""
    jobs: list[Job] = []
    for run in runs:
        jobs += [replace(job, number=number) for number, job in enumerate(run.jobs, len(jobs))]
    session = Session.play(runs[0].context, runs[0].cell, jobs)
    session.duration_s /= len(runs)
    for run in runs:
        replace(run, session=session).run()


def with_bare_heap(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the same with a glibc whose threads keep no small blocks to themselves: a kept one is not filled when it
    is given again, and its first 16 bytes are the allocator's own."""
    known = variables.get(TUNABLES)
    return {**variables, TUNABLES: ":".join(filter(None, (known, "glibc.malloc.tcache_count=0")))}


class Session:
    """Jobs on a cell: run in as few processes as they leave alive, and weighed."""

    def __init__(self, context: Context, cell: Cell, jobs: list[Job]) -> None:
        self.context, self.cell, self.jobs = context, cell, list(jobs)
        self.results: dict[int, ConditionResult] = {}
        self.stopped: Outcome | None = None  # why no job could run
        self.ends = self.hangs = self.processes = 0
        self.duration_s = 0.0
        self.libraries: dict[str, str] = {}
        self.about = f"{cell.kernel}-{cell.device}-{cell.workload}-conditions"
        self.scratch = context.scratch(cell.environment, self.about)
        self.out = context.scratch(cell.environment, f"{self.about}.out")
        self.info = context.plan.workload(cell.workload)
        self.truth = context.truth_folder(self.info, cell.environment, "-conditions")
        self.workload = workload_request(context, self.info)
        built = context.builds[cell.environment, cell.kernel, cell.device]
        self.kernel = kernel_request(context, cell.kernel, cell.device, built)

    @classmethod
    def play(cls, context: Context, cell: Cell, jobs: list[Job]) -> Session:
        """Return a session whose jobs were run, and what follows from their failures."""
        started, session = time.monotonic(), cls(context, cell, jobs)
        try:
            session.run()
            session.shrink()
        finally:
            session.sweep()
        session.duration_s = time.monotonic() - started
        return session

    def run(self) -> None:
        """Run all jobs, and weigh what they left."""
        self._build_probes()
        self.sweep()
        waiting: list[Job] = []  # to be weighed
        for shared in in_processes(self.jobs):
            if sum(job.bytes for job in (*waiting, *shared)) > MOST_BYTES:
                self._weigh(waiting)
                waiting = []
            waiting += self._run_all(shared)
        self._weigh(waiting)

    def shrink(self) -> None:
        """Try smaller sizes than the smallest that failed, for as long as they fail."""
        tried = [job for job in self.jobs if job.experiment == "lengths"]
        own, most = own_sizes(self.info), len(tried) + MOST_TRIED
        for _ in range(MOST_ROUNDS if tried else 0):
            points = points_of((self.results[job.number] for job in tried), own)
            conditions = sized(shrink(points, own), own)[: most - len(tried)]
            if not conditions or self.stopped:
                break
            first = len(self.jobs)
            smaller = [replace(tried[0], number=n, condition=c) for n, c in enumerate(conditions, first)]
            self.jobs += smaller
            tried += smaller
            self._weigh(self._run_all(smaller))

    def sweep(self) -> None:
        """Remove outputs."""
        shutil.rmtree(self.out, ignore_errors=True)

    def _build_probes(self) -> None:
        for site in {job.condition.site for job in self.jobs} & SOURCES.keys():
            path, why = build_probe(self.context, self.cell.environment, site)
            if path is not None:
                self.libraries[site] = str(path)
            for job in self.jobs:
                if path is None and job.condition.site == site:
                    self._fail(job, Outcome(status=protocol.NOT_RUN, message=why))

    def _fail(self, job: Job, outcome: Outcome) -> None:
        self.results[job.number] = ConditionResult(condition=job.condition, **fields_of(outcome))

    def _run_all(self, jobs: list[Job]) -> list[Job]:
        """Run jobs in one process, and in others what is left when it ends early. Return those that left something."""
        left = [job for job in jobs if job.number not in self.results]
        ran: list[Job] = []
        while left:
            most = MOST_ENDS_BY_SIZE if left[0].experiment == "lengths" else MOST_ENDS
            if self.ends >= most or self.hangs >= MOST_HANGS:
                message = f"not tried: {max(self.ends, self.hangs)} processes before it were lost"
                for job in left:
                    self._fail(job, Outcome(status=protocol.NOT_RUN, message=message))
                break
            answer = self._run_process(left)
            done = [job for job in left if self._load(job) is not None]
            left = [job for job in left if job not in done]
            ran += done
            self.hangs += answer.ended.timed_out
            if answer.result is not None:
                if self._is_refused(answer):
                    break
            elif left and answer.ended.timed_out and not done and len(left) > 1:
                # A container that is killed brings nothing back: which of them hung is seen one by one.
                for job in left:
                    ran += self._run_all([job])
                break
            elif left:
                self._fail(left.pop(0), failure(answer, "the kernel's process"))
            # A process that ended well, and left jobs, lost its device to the last one that it ran.
            well = len(done) - (answer.result is not None and bool(left))
            self.ends = 0 if well > 0 else self.ends + 1
            if answer.result is None and self.cell.device == "cuda":
                check_device(self.context, self.cell.environment)
        return ran

    def _is_refused(self, answer: Answer) -> bool:
        """Return whether nothing of what is left can run: the kernel could not be loaded."""
        result = checked(wire.Outcome, answer, "the kernel's process")
        if result.status == protocol.OK:
            return False
        is_known = result.status in (protocol.UNSUPPORTED, protocol.NOT_RUN)
        self.stopped = replace(result.ended(), status=result.status if is_known else protocol.CRASHED)
        for job in self.jobs:
            if job.number not in self.results and self._load(job) is None:
                self._fail(job, self.stopped)
        return True

    def _load(self, job: Job) -> wire.JobResult | None:
        """Return what a job left, which may have been written by the kernel; None: it did not end."""
        path = self.out / str(job.number) / "done.json"
        left = protocol.read_result(path) if path.is_file() and not path.is_symlink() else None
        try:
            return None if left is None else codec.read(wire.JobResult, left)
        except codec.WireError:
            return wire.JobResult(protocol.CRASHED, wire.UNREADABLE)

    def _run_process(self, jobs: list[Job]) -> Answer:
        plan, environment = self.context.plan, self.cell.environment
        self.out.mkdir(parents=True, exist_ok=True)
        request = wire.ConditionsRequest(
            workload=self.workload,
            seed=plan.seed,
            threads=plan.threads_in(environment),
            kernel=self.kernel,
            out=str(self.out),
            jobs=[job.request() for job in jobs],
            libraries=self.libraries,
        )
        variables = plan.variables[environment]
        if jobs[0].condition.site == "heap":
            variables = with_bare_heap(variables)
        reads = (*files_of(self.kernel, self.workload), *map(Path, self.libraries.values()))
        limit_s = min(TIMEOUT_S, plan.limits.validation_s)
        self.processes += 1
        return answer_of(self.context, self._task(request, limit_s, reads, self.out, variables))

    def _task(
        self, request: wire.Request, limit_s: float, reads: tuple[Path, ...], writes: Path, variables: Mapping[str, str]
    ) -> Task:
        name = "conditions" if isinstance(request, wire.ConditionsRequest) else "weigh"
        return self.context.task(
            name,
            request,
            self.cell.environment,
            scratch=self.scratch,
            log=f"{name}-{self.about}-{self.processes}",
            timeout_s=limit_s,
            reads=reads,
            writes=(writes,),
            variables=variables,
        )

    def _weigh(self, jobs: list[Job]) -> None:
        """Judge what jobs left, and remove it."""
        if not jobs:
            return
        plan, environment = self.context.plan, self.cell.environment
        self.truth.mkdir(parents=True, exist_ok=True)
        request = wire.WeighRequest(
            workload=self.workload,
            seed=plan.seed,
            threads=plan.threads_in(environment),
            candidate_out=str(self.out),
            truth_dir=str(self.truth),
            decides=plan.tolerances.decides,
            limits=plan.tolerances.limits(self.info.dtype),
            precision=plan.kernel(self.cell.kernel).precision,
            device=self.cell.device,
            jobs=[
                wire.WeighedJobRequest(
                    number=job.number,
                    condition=job.condition,
                    trials=list(job.trials),
                    repeats=job.repeats,
                    done=done,
                )
                for job in jobs
                if (done := self._load(job)) is not None
            ],
        )
        reads = (*files_of(None, self.workload), self.out, self.truth)
        task = self._task(request, plan.limits.validation_s, reads, self.truth, plan.variables[environment])
        answer = answer_of(self.context, task)
        result = checked(wire.WeighResult, answer, "weighing its outputs")
        rows = result.results if isinstance(result, wire.WeighResult) else []
        lost = failure(answer, "weighing its outputs") if isinstance(result, wire.WeighResult) else result
        for job in jobs:
            self._fail(job, lost)
        for row in rows:
            fields = fields_of(row)
            number = fields.pop("number")
            if number in self.results:
                self.results[number] = ConditionResult(condition=self.jobs[number].condition, **fields)
        self.sweep()
