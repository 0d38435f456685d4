"""Launches: fresh processes that time, the statistical replicates."""

from __future__ import annotations

from typing import Any

from harness.executors import Task
from harness.inside import protocol
from harness.plan import PlannedLaunch
from harness.records import LaunchRecord, Outcome, Timing, ValidationRecord
from harness.runs import now_utc
from harness.steps.context import Context, checked
from harness.steps.requests import EXPECTED_RECIPE, files_of, kernel_request, workload_request

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
    if any(sample < SHORTEST_US or calls < 1 for sample, calls in samples_us):
        return "the launch claims calls of less than a nanosecond"
    claimed_s = sum(sample * calls for sample, calls in samples_us) / 1e6
    if claimed_s > record.duration_s:
        return f"the launch claims {claimed_s:.3g} s of measured calls, and took {record.duration_s:.3g} s in all"
    return ""


def launch(context: Context, planned: PlannedLaunch, validations: dict[str, ValidationRecord]) -> LaunchRecord:
    """One fresh process that times every workload and target. `validations` are the kernel's, by workload.

    A kernel that crashed or hung in validation is not called again: it would take the other workloads with it. In the
    first block its output must also follow a second trial's inputs; that costs too much to ask of every launch.
    """
    plan, run = context.plan, context.run
    built = context.builds[planned.environment, planned.kernel, planned.device]
    workloads = [
        w
        for w in plan.workloads_of(planned.kernel, planned.device)
        if not w.problem or context.stores[w.id][0] is not None
    ]
    key = protocol.digest([plan.digest, planned.environment, planned.kernel, planned.device, planned.index])
    runs_kernel = [w.id for w in workloads if validations[w.id].status in (protocol.OK, protocol.WRONG)]
    expected = {}
    for workload in runs_kernel:
        for recipe in validations[workload].recipes:
            for target in recipe.targets:
                if recipe.recipe == EXPECTED_RECIPE and target.target == protocol.KERNEL and target.output_sha256:
                    expected[workload] = target.output_sha256[: 2 if planned.index == 0 else 1]
    started = now_utc()
    place = f"{planned.kernel}-{planned.device}-{planned.index:03d}"
    requests = [workload_request(context, w) for w in workloads]
    kernel = kernel_request(context, planned.kernel, planned.device, built) if runs_kernel else None
    answer = context.executor.run(
        Task(
            environment=planned.environment,
            verb="time",
            request={
                "kernel": kernel,
                "workloads": requests,
                "kernel_workloads": runs_kernel,
                "targets": [protocol.KERNEL, *plan.kernel(planned.kernel).references],
                "seed": plan.seed,
                "device": planned.device,
                "threads": plan.threads,
                "order_seed": plan.order_seed + planned.position,
                "timing": dict(plan.timing),
                "expected_sha256": expected,
            },
            scratch=run.folder / "scratch" / planned.environment / place,
            log=run.folder / "logs" / planned.environment / f"launch-{place}.log",
            timeout_s=plan.limits["launch_s"],
            reads=files_of(kernel, *requests),
            compiles=context.kernel(planned.kernel).model_new is not None,
        )
    )
    identity: dict[str, Any] = {
        "environment": planned.environment,
        "kernel": planned.kernel,
        "device": planned.device,
        "key": key,
        "index": planned.index,
        "position": planned.position,
        "started_utc": started,
        "duration_s": round(answer.ended.duration_s, 3),
        "overhead_s": round(answer.ended.overhead_s, 3),
    }
    record = checked(lambda: LaunchRecord(**identity, **(answer.result or {})), answer, "the launch")
    if isinstance(record, LaunchRecord) and record.status == protocol.OK:
        targets = [protocol.KERNEL, *plan.kernel(planned.kernel).references]
        asked = {(w.id, t) for w in workloads for t in targets if t != protocol.KERNEL or w.id in runs_kernel}
        lie = implausible(record, asked)
        if lie:
            record = Outcome(status=protocol.WRONG, message=lie, log_excerpt=answer.ended.log)
    if not isinstance(record, LaunchRecord):
        return LaunchRecord(**identity, status=record.status, message=record.message, log_excerpt=record.log_excerpt)
    missing = [
        Timing(
            workload=w.id,
            target=protocol.KERNEL,
            order=-1,
            status="not_run",
            message=f"the kernel was not called: in validation it {validations[w.id].status.replace('_', ' ')}",
        )
        for w in workloads
        if w.id not in runs_kernel
    ]
    return record.model_copy(update={"timings": [*record.timings, *missing]})
