"""The device's peaks: measured once a run, so that every rate in it is a share of what this device reached then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.config.plan import PlannedLaunch
from harness.progress import Display
from harness.run.context import Context, answer_of, checked, fields_of
from harness.run.device import check_device
from harness.run.folders import now_utc
from harness.run.launch import Replicate, unrecorded
from harness.run.memo import is_recorded
from harness.schema.environment_records import CeilingRecord
from harness.schema.records import ENDED_BADLY
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
    request = wire.CeilingsRequest(threads=context.plan.threads_in(environment))
    answer = answer_of(context, context.task("ceilings", request, environment, timeout_s=context.plan.limits.launch_s))
    identity: dict[str, Any] = {
        "key": ceiling_key(context, environment),
        "device_uuid": uuid,
        "device_name": name,
        "environment": environment,
        "started_utc": started,
    }
    result = checked(wire.CeilingsResult, answer, "measuring the device's peaks")
    return CeilingRecord(**identity, **fields_of(result))


def find_ceilings(
    context: Context, display: Display, due: Sequence[PlannedLaunch], launches: Mapping[PlannedLaunch, Replicate]
) -> None:
    """Record the peaks of the device that CUDA launches use, by the baseline's PyTorch, else by the first that is
    usable; another run's, where every launch is another run's."""
    plan, run = context.plan, context.run
    usable = {launch.environment for launch in launches if launch.device == "cuda"}
    environment = next((id for id in (plan.baseline, *plan.measured) if id in usable), None)
    if environment is None:
        return
    path = run.ceiling_path(device_name(context, environment)[0])
    if path.exists():
        return
    measures = any(launch.device == "cuda" for launch in unrecorded(context, due, launches))
    if not measures and is_recorded(context, path, CeilingRecord, ceiling_key(context, environment), lambda *_: True):
        return
    with context.hold("cuda"):
        record = context.save(path, measure_ceilings(context, environment))
        if record.status in ENDED_BADLY:
            check_device(context, environment)
    display.note(f"ceilings of {record.device_name}: {record.message or record.status}")
