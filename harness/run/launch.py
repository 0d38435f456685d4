"""Launches: fresh processes that time, the statistical replicates. One after another, the next one ready meanwhile."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from itertools import starmap
from pathlib import Path
from typing import Any

from harness.config.plan import Plan, PlannedLaunch
from harness.executors import Answer, Executor, Task
from harness.executors.process import Gate
from harness.gpu import Watch
from harness.progress import Display
from harness.run.believed import implausible
from harness.run.context import Context, checked, failure, fields_of
from harness.run.device import check_device
from harness.run.folders import now_utc
from harness.run.processors import Bound, bind
from harness.run.requests import EXPECTED_RECIPE, files_of, kernel_request, workload_request
from harness.run.throttling import watched_launch
from harness.schema.records import ENDED_BADLY, Device, LaunchRecord, Outcome, Status, TargetTiming, ValidationRecord
from harness.schema.storage import Run, load_record
from harness.worker import channel, protocol, wire
from harness.worker.protocol import Fault

MEMORY_LAUNCHES, QUICK_MEMORY_LAUNCHES = 5, 2  # it differs little from launch to launch
AHEAD_CORES = 8  # processors with which the next launch gets ready while this one measures a GPU


def timing_request(plan: Plan, device: Device) -> wire.SamplingRequest:
    """How long to measure on a device."""
    timing: dict[str, Any] = plan.timing.model_dump()
    relative_error_cuda = timing.pop("relative_error_cuda")
    return wire.SamplingRequest(**timing | ({"relative_error": relative_error_cuda} if device == "cuda" else {}))


def goes_ahead(executor: Executor, device: Device) -> bool:
    """Whether a launch may start while another measures: to import PyTorch takes seconds, in which the GPU would wait.

    Only its start, up to the first use of the GPU, and only where processors are left for the one that measures.
    """
    return device == "cuda" and executor.holds_back and (os.cpu_count() or 1) >= AHEAD_CORES


class Replicate:
    """Fresh processes that time workloads and targets. `validations` are the kernel's, by workload.

    One process measures, and the kernel computes in another (`worker.measuring`).

    A kernel that crashed or hung in validation is not called again: it would take the other workloads with it.
    """

    def __init__(self, context: Context, planned: PlannedLaunch, validations: dict[str, ValidationRecord]) -> None:
        self.context, self.planned, self.validations = context, planned, validations
        plan = context.plan
        there = [
            w
            for w in plan.workloads_of(planned.kernel, planned.device)
            if not w.problem or context.stores[w.id].folder is not None
        ]
        info = plan.kernel(planned.kernel)
        self.subject = protocol.MODEL if info.pytorch else protocol.KERNEL
        targets = list(dict.fromkeys([self.subject, *info.references_on(planned.device)]))
        every = [(w.id, t) for w in there for t in (*targets, *(_backward(targets) if w.backward else ()))]
        wanted = [row for row in every if planned.rows is None or row in planned.rows]
        self.asked = list(dict.fromkeys(w for w, _ in wanted))
        # What crashed in validation would take the others with it.
        lost = {w for w in self.asked if validations[w].status not in protocol.RAN}
        self.not_called = [w for w, t in wanted if t == self.subject and w in lost]
        self.rows = [(w, t) for w, t in wanted if w not in lost or t not in (self.subject, *_backward([self.subject]))]
        self.runs_kernel = [w for w, t in self.rows if t == protocol.KERNEL]
        self.rows += self._control(planned.index)
        self.workloads = [w for w in there if w.id in dict(self.rows)]
        self._early: tuple[Gate, Future[tuple[Answer, Answer | None]]] | None = None

    def _control(self, index: int) -> list[tuple[str, str]]:
        """Return the row of this replicate's control, if any: a workload's first reference, in the kernel's process.

        Replicates take the workloads in turns. A reference that failed in validation may end the process, and the
        kernel with it."""
        info = self.context.plan.kernel(self.planned.kernel)
        names = info.references_on(self.planned.device)
        works = [
            workload
            for workload in self.runs_kernel
            if names and any(status in protocol.RAN for status, _ in self._validated(workload, names[0]))
        ]
        return [(works[index % len(works)], protocol.CONTROL + names[0])] if works else []

    @cached_property
    def key(self) -> str:
        planned = self.planned
        return self.context.key(
            "launch",
            environment=planned.environment,
            kernel=planned.kernel,
            device=planned.device,
            index=planned.index,
            asked=self.rows,
        )

    @cached_property
    def _bound(self) -> Bound:
        planned = self.planned
        if planned.device == "cuda" or not self.context.executor.binds(planned.environment):
            return Bound()
        return bind(self.context.plan.threads_in(planned.environment))

    @cached_property
    def cannot_run(self) -> str:
        """Return why a process would time nothing: no row had an output in validation. '' where one had."""
        if any(status in protocol.RAN for row in self.rows for status, _ in self._validated(*row)):
            return ""
        failed = next((v for w in self.asked if (v := self.validations[w]).message), None)
        why = f": {failed.workload}: {failed.message}" if failed else ""
        return f"nothing can run here, so nothing was timed{why}"

    def _validated(self, workload: str, target: str) -> list[tuple[Status, str]]:
        """Return (status, message) in validation: one of the kernel, of a reference one of each input distribution."""
        known = self.validations[workload]
        if target == self.subject:
            return [(known.status, known.message)]
        name = target.partition(protocol.BACKWARD)[0]
        return [(r.status, r.message) for recipe in known.recipes for r in recipe.targets if r.target == name]

    def prepare(self, pool: ThreadPoolExecutor) -> None:
        """Start it in a thread; it measures when `run` is called."""
        gate = Gate()
        self._early = gate, pool.submit(self._both_answers, gate)

    def run(self) -> LaunchRecord:
        """Measure, to the end. Where nothing can run, no process is started."""
        context, planned = self.context, self.planned
        started = now_utc()
        if self.cannot_run:
            return LaunchRecord(
                **self._identity(started),
                duration_s=0,
                status=protocol.NOT_RUN,
                message=self.cannot_run,
                timings=[*starmap(self._not_timed, self.rows), *self._not_called()],
            )
        uuid = context.gpu.uuid if context.gpu is not None and planned.device == "cuda" else None
        # Who measures, the references, the kernel, and a fork whose memory is measured.
        with Watch(uuid, own=4 if self.runs_kernel else 3) as watch:
            answer, kernels = self._answers()
        identity = self._identity(started) | {
            "duration_s": round(answer.ended.duration_s, 3),
            "overhead_s": round(answer.ended.overhead_s, 3),
        }
        # Who measures calls no kernel. PyTorch's own operators give it the truth.
        result = checked(wire.TimeResult, answer, "the launch", holds_subject=self.subject == protocol.MODEL)
        if kernels is not None and kernels.result is None and _lost_kernel(result):
            result = failure(kernels, "the launch")
            if self._early is not None:  # its process may have waited for the launch before this one
                result = replace(result, ended_after_s=None)
        record: LaunchRecord | None = None
        if isinstance(result, wire.TimeResult):
            record = LaunchRecord(**identity, **fields_of(result))
            impossible = implausible(record, set(self.rows)) if record.status == protocol.OK else ""
            if impossible:
                result, record = Outcome(status=protocol.WRONG, message=impossible, log_excerpt=answer.ended.log), None
            elif record.status == protocol.OK and planned.device == "cuda":
                record = watched_launch(record, watch, uuid)
        if record is None:
            return LaunchRecord(**identity, **fields_of(result))
        return replace(record, timings=[*record.timings, *self._not_called()])

    def _identity(self, started: str) -> dict[str, Any]:
        planned = self.planned
        return {
            "environment": planned.environment,
            "kernel": planned.kernel,
            "device": planned.device,
            "key": self.key,
            "index": planned.index,
            "workloads": self.asked,
            "position": planned.position,
            "started_utc": started,
        }

    def _answers(self) -> tuple[Answer, Answer | None]:
        """Of the process that measures, and of the kernel's own, where it has one."""
        if self._early is not None:
            gate, future = self._early
            gate.open()
            answers = future.result()
        else:
            answers = self._both_answers()
        if any(answer.ended.from_outside for answer in answers if answer):  # as `answer_of` has it
            answers = self._both_answers()
        return answers

    def _both_answers(self, gate: Gate | None = None) -> tuple[Answer, Answer | None]:
        executor, measured = self.context.executor, threading.Event()
        if not self.runs_kernel:
            return executor.run(self._task(gate)), None
        with executor.linking(self.planned.environment) as link, ThreadPoolExecutor(1) as pool:
            hosted = pool.submit(executor.run, self._host_task(link, measured))
            hosted.add_done_callback(lambda _: _say_ended(link))
            try:
                answer = executor.run(self._task(gate, link))
            finally:
                measured.set()
            return answer, hosted.result()

    def _host_task(self, link: Path, until: threading.Event) -> Task:
        """The process that the kernel computes in."""
        context, planned, plan = self.context, self.planned, self.context.plan
        requests = [workload_request(context, w) for w in self.workloads]
        kernel = self._kernel()
        request = wire.HostRequest(
            kernel=kernel,
            workloads=requests,
            seed=plan.seed,
            device=planned.device,
            threads=plan.threads_in(planned.environment),
            link=str(link),
        )
        return context.task(
            "host",
            request,
            planned.environment,
            launch_name(planned),
            timeout_s=2 * plan.limits.launch_s,  # it may have started while the launch before was measured
            reads=files_of(kernel, *requests),
            link=link,
            until=until,
            processors=self._bound.kernel,
        )

    def _kernel(self) -> wire.KernelRequest:
        planned = self.planned
        built = self.context.builds[planned.environment, planned.kernel, planned.device]
        return kernel_request(self.context, planned.kernel, planned.device, built)

    def _task(self, gate: Gate | None, link: Path | None = None) -> Task:
        context, planned, plan = self.context, self.planned, self.context.plan
        requests = [workload_request(context, w) for w in self.workloads]
        request = wire.TimeRequest(
            workloads=requests,
            rows=[list(row) for row in self.rows],
            seed=plan.seed,
            device=planned.device,
            threads=plan.threads_in(planned.environment),
            order_seed=plan.seed + planned.position,
            timing=timing_request(plan, planned.device),
            expected_sha256=self._expected(),
            held_back=gate is not None,
            other_bits=not plan.kernel(planned.kernel).deterministic,
            link=str(link or ""),
            processors=list(self._bound.references),
            limits={
                w.id: plan.tolerances.limits(w.dtype)
                for w in self.workloads
                if self.validations[w.id].status in (protocol.OK, protocol.UNDECIDABLE)
            },
            decides=plan.tolerances.decides,
            precision=plan.kernel(planned.kernel).precision,
            memory=planned.index < (QUICK_MEMORY_LAUNCHES if plan.quick else MEMORY_LAUNCHES),
        )
        return context.task(
            "time",
            request,
            planned.environment,
            timeout_s=plan.limits.launch_s,
            scratch=context.scratch(planned.environment, launch_name(planned)),
            log=f"launch-{launch_name(planned)}",
            reads=files_of(None, *requests),
            gate=gate,
            link=link,
        )

    def _expected(self) -> dict[str, list[str]]:
        """Digest of the first trial's validated output, by workload."""
        return {
            workload: target.output_sha256[:1]
            for workload in self.runs_kernel
            for recipe in self.validations[workload].recipes
            for target in recipe.targets
            if recipe.recipe == EXPECTED_RECIPE and target.target == protocol.KERNEL and target.output_sha256
        }

    def _not_called(self) -> list[TargetTiming]:
        return [self._without_time(self.validations[workload]) for workload in self.not_called]

    def _not_timed(self, workload: str, target: str) -> TargetTiming:
        """A reference that gave no output in validation."""
        known = self.validations[workload]
        status, message = next(iter(self._validated(workload, target)), (protocol.NOT_RUN, known.message))
        return TargetTiming(workload=workload, target=target, order=-1, status=status, message=message)

    def _without_time(self, known: ValidationRecord) -> TargetTiming:
        """Of PyTorch itself there is no more to say than what validation said."""
        status, message = known.status, known.message
        if self.subject == protocol.KERNEL:
            told = known.fault is Fault.SUBJECT
            message = f"the kernel was not called: in validation it {status.replace('_', ' ')}" if told else message
            status = protocol.NOT_RUN
        return TargetTiming(
            workload=known.workload, target=self.subject, order=-1, status=status, message=message, fault=known.fault
        )


def _backward(targets: Iterable[str]) -> list[str]:
    """What is timed of their backward pass by itself. A kernel has none: its one function does both."""
    return [target + protocol.BACKWARD for target in targets if target != protocol.KERNEL]


def _say_ended(link: Path) -> None:
    """To who measures, and may still wait for the kernel's process to come; in containers docker/task.sh says it. A
    stranger may have put a link there, which is not followed."""
    with contextlib.suppress(OSError):
        os.close(os.open(link / channel.ENDED, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY, 0o644))


def launch_name(planned: PlannedLaunch) -> str:
    return f"{planned.kernel}-{planned.device}-{planned.index:03d}"


def _lost_kernel(result: wire.TimeResult | Outcome) -> bool:
    """Whether the kernel's process ended while it was measured."""
    return isinstance(result, wire.TimeResult) and any(row.message == protocol.GONE for row in result.timings)


def launch_path(run: Run, planned: PlannedLaunch) -> Path:
    return run.launch_path(planned.environment, planned.kernel, planned.device, planned.index)


def launches_of(
    context: Context, due: Sequence[PlannedLaunch], refused: Mapping[str, str]
) -> dict[PlannedLaunch, Replicate]:
    """Of the launches that are due, those that can be made: neither of a broken environment nor of a refused kernel."""
    validations: dict[tuple[str, str, str], dict[str, ValidationRecord]] = {}
    for cell in context.plan.cells:
        validation = load_record(context.run.validation_path(cell), ValidationRecord)
        validations.setdefault((cell.environment, cell.kernel, cell.device), {})[cell.workload] = validation
    return {
        p: Replicate(context, p, validations[p.environment, p.kernel, p.device])
        for p in due
        if context.environment_ok(p.environment) and p.kernel not in refused
    }


def unrecorded(
    context: Context, due: Sequence[PlannedLaunch], launches: Mapping[PlannedLaunch, Replicate]
) -> list[PlannedLaunch]:
    """The launches that are not recorded, or under another key, since a kernel can be called now on more workloads."""

    def is_recorded(planned: PlannedLaunch) -> bool:
        path = launch_path(context.run, planned)
        if planned not in launches or not path.exists():
            return path.exists()
        return load_record(path, LaunchRecord).key == launches[planned].key

    return [planned for planned in due if not is_recorded(planned)]


def launch_all(
    context: Context,
    display: Display,
    due: Sequence[PlannedLaunch],
    launches: Mapping[PlannedLaunch, Replicate],
    refused: Mapping[str, str],
) -> None:
    """Launch one after another. Where it may, the next one gets ready meanwhile. Refused kernels are not launched."""
    plan = context.plan
    waiting = unrecorded(context, due, launches)
    pool = ThreadPoolExecutor(2)  # the launch that measures, and the one that gets ready
    try:
        for planned, following in itertools.zip_longest(waiting, waiting[1:]):
            ahead = launches.get(following) if following is not None else None
            if ahead is not None and not ahead.cannot_run and goes_ahead(context.executor, ahead.planned.device):
                ahead.prepare(pool)
            record = _measure(context, planned, launches.get(planned), refused.get(planned.kernel))
            most = plan.launches_each if planned.index < plan.launches_each else plan.most_launches
            display.step(
                f"launch {planned.index + 1}/{most} {planned.environment} {planned.kernel} "
                f"({planned.device}): {record.status.replace('_', ' ')}"
                + (f": {record.message}" if record.message else "")
            )
    except BaseException:
        context.executor.stop()
        raise
    finally:
        pool.shutdown(wait=False)


def _measure(context: Context, planned: PlannedLaunch, launch: Replicate | None, refused: str | None) -> LaunchRecord:
    """Run and record a launch; None: its kernel was refused, or its environment is broken."""
    path = launch_path(context.run, planned)
    if launch is None:
        broken = LaunchRecord(
            environment=planned.environment,
            kernel=planned.kernel,
            device=planned.device,
            key="",
            index=planned.index,
            position=planned.position,
            started_utc=now_utc(),
            duration_s=0,
            status="not_run" if refused else "broken",
            message=f"its kernel is not timed: {refused}" if refused else "its environment is broken",
        )
        return context.save(path, broken)
    with context.hold(planned.device):
        record = context.save(path, launch.run())
        if planned.device == "cuda" and record.status in ENDED_BADLY:
            check_device(context, planned.environment)
    return record
