"""The experiments that run the kernel under changed conditions: poison, call order, inputs, repeat.

The conditions of all experiments on a cell go into one list of jobs, since starting PyTorch costs more than most of
them. A process runs jobs until it ends; what a crash took with it is known by what is missing, and the rest goes on in
a fresh one. Then a process that never loads the kernel weighs what was left.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from harness.executors import Answer, Task
from harness.experiments.condition_list import sized
from harness.experiments.jobs import MOST_BYTES, Job, Trials, in_processes, jobs_of, merge
from harness.experiments.probes import FOLDER, SITES, SOURCES, build_probe
from harness.run.context import Context, answer_of, checked, failure, fields_of
from harness.run.device import check_device
from harness.run.folders import now_utc
from harness.run.requests import files_of, kernel_request, workload_request
from harness.schema.experiment_records import Condition, ConditionResult, ConditionsExperiment, ConditionsRecord
from harness.schema.records import Outcome, Status
from harness.schema.run_records import Cell
from harness.stats.shrink import MOST_ROUNDS, MOST_TRIED, own_sizes, points_of, shrink
from harness.worker import codec, protocol, wire

MOST_ENDS = 4  # processes that die one after the other before the rest is given up
MOST_ENDS_BY_SIZE = 16  # the same where their sizes differ: at some it may crash, and at others not
MOST_HANGS = 2  # each costs its whole time limit
TIMEOUT_S = 300.0
TUNABLES = "GLIBC_TUNABLES"


def conditions_key(context: Context, cell: Cell, jobs: Sequence[Job]) -> str:
    """Digest of all that determines an experiment's outcome."""
    asked = [
        [[asdict(job.condition), list(job.trials), job.repeats] for job in jobs],
        [protocol.sha256_file(str(FOLDER / source)) for source in SOURCES.values()],
    ]
    return context.key("conditions", **vars(cell), asked=asked)


def run_conditions(
    context: Context,
    cell: Cell,
    experiments: Sequence[ConditionsExperiment],
    trials: Trials,
) -> list[ConditionsRecord]:
    """A record for each experiment. What the kernel does is a row of it; nothing is raised for it."""
    started = now_utc()
    jobs = jobs_of(context, cell, experiments, trials)
    session = Session(context, cell, jobs)
    try:
        session.run()
        session.shrink()
    finally:
        session.sweep()
    return [_record(context, cell, experiment, session, jobs, started) for experiment in experiments]


def _record(
    context: Context, cell: Cell, experiment: ConditionsExperiment, session: Session, planned: list[Job], started: str
) -> ConditionsRecord:
    """Its key is of what was planned, from which the rest follows."""
    jobs = [job for job in session.jobs if job.experiment == experiment]
    by_condition: dict[Condition, list[Job]] = {}
    for job in jobs:
        by_condition.setdefault(job.condition, []).append(job)
    results = [
        merge(same[0].condition, [session.results[job.number] for job in same]) for same in by_condition.values()
    ]
    return ConditionsRecord(
        **vars(cell),
        experiment=experiment,
        key=conditions_key(context, cell, [job for job in planned if job.experiment == experiment]),
        results=results,
        started_utc=started,
        duration_s=round(sum(session.spent_s[job.number] for job in jobs), 3),
        **vars(session.stopped or Outcome(status="ok")),
    )


def with_bare_heap(variables: Mapping[str, str]) -> dict[str, str]:
    """The same with a glibc whose threads keep no small blocks to themselves: a kept one is not filled when it is given
    again, and its first 16 bytes are the allocator's own."""
    known = variables.get(TUNABLES)
    return {**variables, TUNABLES: ":".join(filter(None, (known, "glibc.malloc.tcache_count=0")))}


class Session:
    """All jobs of one cell: run in as few processes as they leave alive, and weighed."""

    def __init__(self, context: Context, cell: Cell, jobs: list[Job]) -> None:
        self.context, self.cell, self.jobs = context, cell, list(jobs)
        self.results: dict[int, ConditionResult] = {}
        self.spent_s = {job.number: 0.0 for job in jobs}
        self.stopped: Outcome | None = None  # why no job could run, or what discredits all
        self.ends = self.hangs = self.processes = 0
        self.libraries: dict[str, str] = {}
        self.about = f"{cell.kernel}-{cell.device}-{cell.workload}-conditions"
        self.scratch = context.scratch(cell.environment, self.about)
        self.out = context.scratch(cell.environment, f"{self.about}.out")
        workload = context.plan.workload(cell.workload)
        self.truth = context.truth_folder(workload, cell.environment, "-conditions")
        built = context.builds[cell.environment, cell.kernel, cell.device]
        self.workload = workload_request(context, workload)
        self.kernel = kernel_request(context, cell.kernel, cell.device, built)
        self.limits = context.plan.tolerances.limits(workload.dtype)
        self.precision = context.plan.kernel(cell.kernel).precision
        self.timeout_s = min(TIMEOUT_S, context.plan.limits.validation_s)

    def run(self) -> None:
        self._build_probes()
        self.sweep()
        waiting: list[Job] = []  # to be weighed
        for shared in in_processes(self.jobs):
            if waiting and sum(job.bytes for job in (*waiting, *shared)) > MOST_BYTES:
                self._weigh(waiting)
                waiting = []
            waiting += self._run_all(shared)
        self._weigh(waiting)

    def shrink(self) -> None:
        """Try smaller sizes than the smallest that failed, for as long as they fail."""
        tried = [job for job in self.jobs if job.experiment == "lengths"]
        if not tried:
            return
        own = own_sizes(self.context.plan.workload(self.cell.workload))
        most = len(tried) + MOST_TRIED
        for _ in range(MOST_ROUNDS):
            points = points_of((self.results[job.number] for job in tried), own)
            conditions = sized(shrink(points, own), own)[: most - len(tried)]
            if not conditions or self.stopped:
                break
            smaller = [replace(tried[0], number=len(self.jobs) + n, condition=c) for n, c in enumerate(conditions)]
            self.jobs += smaller
            self.spent_s |= {job.number: 0.0 for job in smaller}
            self._weigh(self._run_all(smaller))
            tried += smaller

    def sweep(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)

    def _build_probes(self) -> None:
        wanted = {job.condition.site for job in self.jobs}
        for site in SITES[self.cell.device]:
            if site in wanted:
                path, why = build_probe(self.context, self.cell.environment, site)
                if path is not None:
                    self.libraries[site] = str(path)
                else:
                    for job in (job for job in self.jobs if job.condition.site == site):
                        self._fail(job, "not_run", why)

    def _fail(self, job: Job, status: Status, message: str, log: str = "") -> None:
        self.results[job.number] = ConditionResult(
            condition=job.condition, status=status, message=message, log_excerpt=log
        )

    def _run_all(self, jobs: list[Job]) -> list[Job]:
        """Run jobs in one process, and in others what is left when it ends early. Gives those that left something."""
        left = [job for job in jobs if job.number not in self.results]
        ran: list[Job] = []
        while left:
            most = MOST_ENDS_BY_SIZE if left[0].experiment == "lengths" else MOST_ENDS
            if self.ends >= most or self.hangs >= MOST_HANGS:
                for job in left:
                    self._fail(job, "not_run", f"not tried: {max(self.ends, self.hangs)} processes before it were lost")
                break
            answer = self._run_process(left)
            done = [job for job in left if self._done(job) is not None]
            self._share(answer.ended.duration_s, done or left[:1])
            ran += done
            left = [job for job in left if job not in done]
            well = len(done)
            self.hangs += answer.ended.timed_out
            if answer.result is not None:
                if self._refused(answer, left):
                    break
                well -= bool(left)  # its device was lost to the last one that it ran
            elif left and answer.ended.timed_out and not done and len(left) > 1:
                # A container that is killed brings nothing back: which of them hung is seen one by one.
                for job in left:
                    ran += self._run_all([job])
                break
            elif left:
                job, left = left[0], left[1:]
                ended = failure(answer, "the kernel's process")
                self._fail(job, ended.status, ended.message, ended.log_excerpt)
            self.ends = 0 if well > 0 else self.ends + 1
            if answer.result is None and self.cell.device == "cuda":
                check_device(self.context, self.cell.environment)
        return ran

    def _refused(self, answer: Answer, left: list[Job]) -> bool:
        """Whether nothing of what is left can run: the kernel could not be loaded."""
        result = checked(wire.Outcome, answer, "the kernel's process")
        if result.status == protocol.OK:
            return False
        known: Status = "crashed"
        if result.status in (protocol.UNSUPPORTED, protocol.NOT_RUN):
            known = result.status
        stopped = Outcome(status=known, message=result.message, log_excerpt=result.log_excerpt)
        self.stopped = stopped
        for job in self.jobs:
            if job.number not in self.results and self._done(job) is None:
                self._fail(job, known, stopped.message)
        return True

    def _share(self, spent_s: float, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self.spent_s[job.number] += spent_s / len(jobs)

    def _done(self, job: Job) -> wire.JobResult | None:
        """What a job left, which may have been written by the kernel; None: it did not end."""
        path = self.out / str(job.number) / "done.json"
        left = protocol.read_result(path) if path.is_file() and not path.is_symlink() else None
        try:
            return None if left is None else codec.read(wire.JobResult, left)
        except codec.WireError:
            return wire.JobResult(protocol.CRASHED, wire.UNREADABLE)

    def _task(
        self,
        name: str,
        request: wire.Request,
        reads: tuple[Path, ...],
        writes: tuple[Path, ...],
        condition: Condition | None = None,
    ) -> Task:
        """`condition`: the first that the process runs; one that asks for other variables has it to itself."""
        variables = self.context.plan.variables[self.cell.environment]
        if condition is not None and condition.site == "heap":
            variables = with_bare_heap(variables)
        return self.context.task(
            name,
            request,
            self.cell.environment,
            scratch=self.scratch,
            log=f"{name}-{self.about}-{self.processes}",
            timeout_s=self.timeout_s if name == "conditions" else self.context.plan.limits.validation_s,
            reads=reads,
            writes=writes,
            variables=variables,
        )

    def _run_process(self, jobs: list[Job]) -> Answer:
        self.processes += 1
        self.out.mkdir(parents=True, exist_ok=True)
        plan = self.context.plan
        request = wire.ConditionsRequest(
            workload=self.workload,
            seed=plan.seed,
            threads=plan.threads_in(self.cell.environment),
            kernel=self.kernel,
            out=str(self.out),
            jobs=[job.request() for job in jobs],
            libraries=self.libraries,
        )
        libraries = tuple(Path(path) for path in self.libraries.values())
        reads = (*files_of(self.kernel, self.workload), *libraries)
        return answer_of(self.context, self._task("conditions", request, reads, (self.out,), jobs[0].condition))

    def _weigh(self, jobs: list[Job]) -> None:
        if not jobs:
            return
        self.truth.mkdir(parents=True, exist_ok=True)
        request = wire.WeighRequest(
            workload=self.workload,
            seed=self.context.plan.seed,
            threads=self.context.plan.threads_in(self.cell.environment),
            candidate_out=str(self.out),
            truth_dir=str(self.truth),
            decides=self.context.plan.tolerances.decides,
            limits=self.limits,
            precision=self.precision,
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
                if (done := self._done(job)) is not None
            ],
        )
        reads = (*files_of(None, self.workload), self.out, self.truth)
        answer = answer_of(self.context, self._task("weigh", request, reads, (self.truth,)))
        self._share(answer.ended.duration_s, jobs)
        result = checked(wire.WeighResult, answer, "weighing its outputs")
        rows = result.results if isinstance(result, wire.WeighResult) else []
        weighed = {row.number: row for row in rows}
        lost = failure(answer, "weighing its outputs") if isinstance(result, wire.WeighResult) else result
        for job in jobs:
            if job.number in weighed:
                fields = fields_of(weighed[job.number])
                del fields["number"]
                self.results[job.number] = ConditionResult(condition=job.condition, **fields)
            else:
                self._fail(job, lost.status, lost.message, lost.log_excerpt)
        self.sweep()
