"""Profile: where one target's time goes in one environment, by operator and device function.

What differs between environments, `reports` says, which compares the records.
"""

from __future__ import annotations

from typing import Any

from harness.run.context import Context, checked, fields_of
from harness.run.device import run_task
from harness.run.folders import now_utc
from harness.run.requests import files_of, kernel_request, workload_request
from harness.schema.experiment_records import ProfileRecord
from harness.schema.run_records import Cell
from harness.worker import protocol, wire

CALLS = 20
MOST_S = 5.0  # of profiled calls


def profile_key(context: Context, cell: Cell, target: str) -> str:
    """Digest of all that determines what is profiled."""
    kind = "profile" if target == protocol.KERNEL else "profile_of_reference"
    return context.key(kind, **vars(cell), asked=target)


def run_profile(context: Context, cell: Cell, target: str) -> ProfileRecord:
    """Profile `target`, the kernel or a reference by name, on a cell. A failure is a row, as any other."""
    plan = context.plan
    workload = plan.workload(cell.workload)
    built = context.builds[cell.environment, cell.kernel, cell.device]
    identity: dict[str, Any] = {
        **vars(cell),
        "target": target,
        "key": profile_key(context, cell, target),
        "started_utc": now_utc(),
    }
    if reason := unavailable(context, cell, target):
        return ProfileRecord(**identity, status=protocol.NOT_RUN, message=reason, duration_s=0)
    request = workload_request(context, workload)
    kernel = kernel_request(context, cell.kernel, cell.device, built) if target == protocol.KERNEL else None
    task = context.task(
        "profile",
        wire.ProfileRequest(
            kernel=kernel,
            workload=request,
            target=target,
            seed=plan.seed,
            device=cell.device,
            threads=plan.threads_in(cell.environment),
            calls=CALLS,
            most_s=MOST_S,
        ),
        cell.environment,
        f"{cell.kernel}-{cell.device}-{cell.workload}-{target}",
        timeout_s=plan.limits.launch_s,
        reads=files_of(kernel, request),
    )
    answer = run_task(context, task, cell.device)
    identity["duration_s"] = round(answer.ended.duration_s, 3)
    record = ProfileRecord(**identity, **fields_of(checked(wire.ProfileResult, answer, "the profiled process")))
    if impossible := implausible(record):
        return ProfileRecord(**identity, status=protocol.WRONG, message=impossible, log_excerpt=answer.ended.log)
    return record


def unavailable(context: Context, cell: Cell, target: str) -> str:
    """'' where the target can be called, else why not."""
    environment = context.environments[cell.environment]
    if environment.status != protocol.OK:
        return f"its environment is {environment.status.replace('_', ' ')}: {environment.message}"
    built = context.builds[cell.environment, cell.kernel, cell.device]
    if target == protocol.KERNEL and built.status != protocol.OK:
        return f"its build is {built.status.replace('_', ' ')}: {built.message}"
    if cell.workload in context.stores and context.stores[cell.workload].folder is None:
        return context.stores[cell.workload].why
    return ""


def implausible(record: ProfileRecord) -> str:
    """'' where the operators fit into the time that passed by our own clock: their process had the kernel in it."""
    claimed_us = sum(row.self_us for row in record.operators if row.kind == "operator") * record.profiled_calls
    if claimed_us > record.duration_s * 1e6:
        return f"the profile claims {claimed_us / 1e6:.3g} s of calls, and took {record.duration_s:.3g} s in all"
    return ""
