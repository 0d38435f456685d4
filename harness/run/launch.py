"""Launches: fresh processes that time, the statistical replicates."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any

from harness.config.plan import Plan, PlannedLaunch
from harness.gpu import Watch
from harness.isolate import Answer, Executor, Task
from harness.isolate.process import Gate
from harness.run.appraise import appraise, appraised, emptied, out_folder
from harness.run.context import Context, checked, fields_of
from harness.run.folders import now_utc
from harness.run.requests import EXPECTED_RECIPE, files_of, kernel_request, room_bytes, workload_request
from harness.run.throttling import judged, relative, watched, window
from harness.schema.records import Device, LaunchRecord, Outcome, Timing, ValidationRecord
from harness.worker import protocol, wire

SHORTEST_US = 1e-3  # of a call: no clock here tells less


def implausible(record: LaunchRecord, asked: set[tuple[str, str]]) -> str:
    """'' where a launch gave what it was asked for, in no more time than passed by our own clock; else what is not so.

    The process that wrote the record had the code under test in it.
    """
    given = [(timing.workload, timing.target) for timing in record.timings]
    if len(given) != len(asked) or set(given) != asked:
        return "the launch gave other rows than it was asked for"
    timed = [timing for timing in record.timings if timing.status == protocol.OK]
    samples_us = [(sample, timing.calls_per_sample) for timing in timed for sample in timing.samples_us]
    samples_us += [(sample, timing.hot_calls_per_sample) for timing in timed for sample in timing.hot_us]
    if any(sample < SHORTEST_US or calls < 1 for sample, calls in samples_us):
        return "the launch claims calls of less than a nanosecond"
    claimed_s = sum(sample * calls for sample, calls in samples_us) / 1e6
    if claimed_s > record.duration_s:
        return f"the launch claims {claimed_s:.3g} s of measured calls, and took {record.duration_s:.3g} s in all"
    return untimely(record, timed)


def untimely(record: LaunchRecord, timed: list[Timing]) -> str:
    """The same for the moments of a GPU's samples: one a sample, and all within the launch."""
    if record.device != "cuda":
        return ""
    for timing in record.timings:
        counts = [len(timing.sampled_s), len(timing.enqueue_us), len(timing.hot_sampled_s)]
        if counts != [len(timing.samples_us), len(timing.samples_us), len(timing.hot_us)]:
            return "the launch gives other numbers of samples and of their moments"
    moments = [moment for timing in timed for moment in (*timing.sampled_s, *timing.hot_sampled_s)]
    if moments and max(moments) - min(moments) > record.duration_s:
        return (
            f"the launch claims samples {max(moments) - min(moments):.3g} s apart, and took {record.duration_s:.3g} s"
        )
    return ""


def watched_launch(record: LaunchRecord, watch: Watch, uuid: str | None) -> LaunchRecord:
    """A GPU's launch with what was read of the GPU meanwhile, and without the samples that this speaks against."""
    timings = [judged(timing, watch.readings) for timing in record.timings]
    windows = [at for at in map(window, record.timings) if at is not None]
    gpu = watched(uuid, watch.readings, windows, watch.other_processes) if uuid and watch.readings else None
    left_out = sum(timing.throttled_samples for timing in timings)
    message = record.message
    if left_out and gpu is not None:
        samples = sum(len(timing.samples_us) + len(timing.hot_us) for timing in record.timings)
        held = ", ".join(gpu.throttle_reasons)
        message = f"{left_out} of {samples} samples left out: the GPU held its clocks back ({held})"
    return record.model_copy(update={"timings": relative(timings), "gpu": gpu, "message": message})


def timing_request(plan: Plan, device: Device) -> wire.SamplingRequest:
    """How long to measure on a device."""
    timing = plan.timing
    return wire.SamplingRequest(
        warmup_s=timing.warmup_s,
        warmup_calls=timing.warmup_calls,
        target_s=timing.target_s,
        min_samples=timing.min_samples,
        max_samples=timing.max_samples,
        relative_error=timing.relative_error_cuda if device == "cuda" else timing.relative_error,
    )


AUDITED_TRIALS = 5
AHEAD_CORES = 8  # processors with which the next launch gets ready while this one measures a GPU


def goes_ahead(executor: Executor, device: Device) -> bool:
    """Whether a launch may start while another measures: to import PyTorch takes seconds, in which the GPU would wait.

    Only its start, up to the first use of the GPU, and only where processors are left for the one that measures.
    """
    return device == "cuda" and executor.holds_back and (os.cpu_count() or 1) >= AHEAD_CORES


class Launch:
    """One fresh process that times every workload and target. `validations` are the kernel's, by workload.

    A kernel that crashed or hung in validation is not called again: it would take the other workloads with it. In the
    first block its output must also follow a second trial's inputs; that costs too much to ask of every launch, unless
    the kernel gives other bits than in validation. A problem file's must follow several trials' in each
    (`worker.audit`), or a kernel could ask which block it is in.
    """

    def __init__(self, context: Context, planned: PlannedLaunch, validations: dict[str, ValidationRecord]) -> None:
        self.context, self.planned, self.validations = context, planned, validations
        plan = context.plan
        self.workloads = [
            w
            for w in plan.workloads_of(planned.kernel, planned.device)
            if not w.problem or context.stores[w.id].folder is not None
        ]
        self.runs_kernel = [w.id for w in self.workloads if validations[w.id].status in protocol.RAN]
        self.targets = [protocol.KERNEL, *plan.kernel(planned.kernel).references_on(planned.device)]
        self._early: tuple[Gate, Future[Answer]] | None = None

    @cached_property
    def key(self) -> str:
        planned = self.planned
        return self.context.key(
            "launch",
            environment=planned.environment,
            kernel=planned.kernel,
            device=planned.device,
            index=planned.index,
            asked=self.runs_kernel,
        )

    def prepare(self, pool: ThreadPoolExecutor) -> None:
        """Start it in a thread; it measures when `run` is called."""
        gate = Gate()
        self._early = gate, pool.submit(self.context.executor.run, self._task(gate))

    def run(self) -> LaunchRecord:
        """Measure, to the end."""
        context, planned = self.context, self.planned
        started = now_utc()
        uuid = context.gpu.uuid if context.gpu is not None and planned.device == "cuda" else None
        with Watch(uuid) as watch:
            if self._early is None:
                answer = context.executor.run(self._task(None))
            else:
                gate, future = self._early
                gate.open()
                answer = future.result()
        identity: dict[str, Any] = {
            "environment": planned.environment,
            "kernel": planned.kernel,
            "device": planned.device,
            "key": self.key,
            "index": planned.index,
            "position": planned.position,
            "started_utc": started,
            "duration_s": round(answer.ended.duration_s, 3),
            "overhead_s": round(answer.ended.overhead_s, 3),
        }
        result = checked(wire.TimeResult, answer, "the launch")
        record: LaunchRecord | None = None
        if isinstance(result, wire.TimeResult):
            fields = fields_of(result)
            del fields["kept"]  # judged below
            record = LaunchRecord(**identity, **fields)
            lie = implausible(record, self._asked()) if record.status == protocol.OK else ""
            if lie:
                result, record = Outcome(status=protocol.WRONG, message=lie, log_excerpt=answer.ended.log), None
            elif record.status == protocol.OK:
                record = self._appraised(record, result.kept)
                if planned.device == "cuda":
                    record = watched_launch(record, watch, uuid)
        shutil.rmtree(out_folder(context, planned), ignore_errors=True)
        if record is None:
            return LaunchRecord(**identity, **fields_of(result))
        return record.model_copy(update={"timings": [*record.timings, *self._not_called()]})

    def _task(self, gate: Gate | None) -> Task:
        context, planned = self.context, self.planned
        plan, run = context.plan, context.run
        built = context.builds[planned.environment, planned.kernel, planned.device]
        place = f"{planned.kernel}-{planned.device}-{planned.index:03d}"
        requests = [workload_request(context, w) for w in self.workloads]
        kernel = kernel_request(context, planned.kernel, planned.device, built) if self.runs_kernel else None
        out = emptied(out_folder(context, planned))
        return Task(
            environment=planned.environment,
            name="time",
            request=wire.TimeRequest(
                kernel=kernel,
                workloads=requests,
                kernel_workloads=self.runs_kernel,
                targets=self.targets,
                seed=plan.seed,
                device=planned.device,
                threads=plan.threads_in(planned.environment),
                order_seed=plan.order_seed + planned.position,
                timing=timing_request(plan, planned.device),
                expected_sha256=self._expected(),
                held_back=gate is not None,
                out="" if plan.kernel(planned.kernel).deterministic else str(out),
                most_bytes=room_bytes(plan) // 2,
            ),
            scratch=run.folder / "scratch" / planned.environment / place,
            log=run.folder / "logs" / planned.environment / f"launch-{place}.log",
            timeout_s=plan.limits.launch_s,
            reads=files_of(kernel, *requests),
            writes=(out,),
            compiles=context.kernel(planned.kernel).model_new is not None,
            gate=gate,
        )

    def _appraised(self, record: LaunchRecord, kept: list[wire.KeptOutput]) -> LaunchRecord:
        """With what is found of outputs that had other bits than the validated ones."""
        if not kept:
            return record
        answer = appraise(self.context, self.planned, self.workloads, kept)
        return record.model_copy(update={"timings": appraised(record.timings, kept, answer)})

    def _asked(self) -> set[tuple[str, str]]:
        return {
            (w.id, target)
            for w in self.workloads
            for target in self.targets
            if target != protocol.KERNEL or w.id in self.runs_kernel
        }

    def _expected(self) -> dict[str, list[str]]:
        """Digests of the validated outputs, by workload: of one trial, of two, or of those that are audited."""
        few = 2 if self.planned.index == 0 else 1
        most = {w.id: AUDITED_TRIALS if w.problem else few for w in self.workloads}
        return {
            workload: target.output_sha256[: most[workload]]
            for workload in self.runs_kernel
            for recipe in self.validations[workload].recipes
            for target in recipe.targets
            if recipe.recipe == EXPECTED_RECIPE and target.target == protocol.KERNEL and target.output_sha256
        }

    def _not_called(self) -> list[Timing]:
        left_out = [w.id for w in self.workloads if w.id not in self.runs_kernel]
        words = {id: self.validations[id].status.replace("_", " ") for id in left_out}
        return [
            Timing(
                workload=id,
                target=protocol.KERNEL,
                order=-1,
                status="not_run",
                message=f"the kernel was not called: in validation it {words[id]}",
            )
            for id in left_out
        ]
