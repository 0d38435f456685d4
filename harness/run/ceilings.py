"""The device's peaks: measured once a run, so that every rate in it is a share of what this device reached then."""

from __future__ import annotations

from typing import Any

from harness.isolate import Task
from harness.run.context import Context, checked, fields_of
from harness.run.folders import now_utc
from harness.schema.records import CeilingRecord
from harness.worker import wire


def device_name(context: Context, environment: str) -> tuple[str, str]:
    """(UUID, name) of the GPU that CUDA cells run on: by the management library, else as PyTorch saw it."""
    if context.gpu is not None:
        return context.gpu.uuid, context.gpu.name
    observed = context.environments[environment].observed
    seen = observed.gpus[0] if observed is not None and observed.gpus else None
    return (seen.uuid or "unknown", seen.name) if seen is not None else ("unknown", "unknown")


def ceiling_key(context: Context, environment: str) -> str:
    return context.key("ceiling", environment=environment, device="cuda")


def measure_ceilings(context: Context, environment: str) -> CeilingRecord:
    """Measure with the PyTorch of `environment`. A failure is a row, as any other."""
    uuid, name = device_name(context, environment)
    started = now_utc()
    answer = context.executor.run(
        Task(
            environment=environment,
            name="ceilings",
            request=wire.CeilingsRequest(threads=context.plan.threads_in(environment)),
            scratch=context.run.folder / "scratch" / environment / "ceilings",
            log=context.run.folder / "logs" / environment / "ceilings.log",
            timeout_s=context.plan.limits.launch_s,
        )
    )
    identity: dict[str, Any] = {
        "key": ceiling_key(context, environment),
        "device_uuid": uuid,
        "device_name": name,
        "environment": environment,
        "started_utc": started,
    }
    result = checked(wire.CeilingsResult, answer, "measuring the device's peaks")
    return CeilingRecord(**identity, **fields_of(result))
