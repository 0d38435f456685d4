"""Launches, one after another, and what the device they use can do at most."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from harness.experiments.admitting import Refusal
from harness.inside import protocol
from harness.phases.holding import device_held, save
from harness.plan import PlannedLaunch
from harness.progress import Display
from harness.records import LaunchRecord, ValidationRecord
from harness.runs import now_utc
from harness.steps.ceilings import device_name, measure_ceilings
from harness.steps.context import Context
from harness.steps.launching import Launch, goes_ahead
from harness.steps.probing import check_device
from harness.storage import load_record

ENDED_BADLY = (protocol.CRASHED, protocol.TIMED_OUT, protocol.KILLED)


def find_ceilings(context: Context, display: Display, due: Sequence[PlannedLaunch]) -> None:
    """Of the device that CUDA launches will use, by the baseline's PyTorch, else by the first that is usable."""
    plan, run = context.plan, context.run
    waiting = {
        launch.environment for launch in due if launch.device == "cuda" and context.environment_ok(launch.environment)
    }
    environment = next((id for id in (plan.baseline, *plan.measured) if id in waiting), None)
    if environment is None:
        return
    path = run.ceiling_path(device_name(context, environment)[0])
    if path.exists():
        return
    with device_held(context, "cuda"):
        record = save(context, path, measure_ceilings(context, environment))
        if record.status in ENDED_BADLY:
            check_device(context, environment)
    display.note(f"ceilings of {record.device_name}: {record.message or record.status}")


def launch_all(
    context: Context, display: Display, due: Sequence[PlannedLaunch], refused: Mapping[str, Refusal]
) -> None:
    """One after another. Where it may, the next one gets ready meanwhile. Refused kernels are not launched."""
    plan, run = context.plan, context.run
    validations: dict[tuple[str, str, str], dict[str, ValidationRecord]] = {}
    for cell in plan.cells:
        validation = load_record(run.validation_path(cell), ValidationRecord)
        validations.setdefault((cell.environment, cell.kernel, cell.device), {})[cell.workload] = validation
    waiting = [p for p in due if not run.launch_path(p.environment, p.kernel, p.device, p.index).exists()]
    launches = {
        p: Launch(context, p, validations[p.environment, p.kernel, p.device])
        for p in waiting
        if context.environment_ok(p.environment) and p.kernel not in refused
    }
    pool = ThreadPoolExecutor(2)  # the launch that measures, and the one that gets ready
    try:
        for planned, following in itertools.zip_longest(waiting, waiting[1:]):
            if following in launches and goes_ahead(context.executor, following.device):
                launches[following].prepare(pool)
            record = _measure(context, planned, launches.get(planned), refused.get(planned.kernel))
            display.step(
                f"launch {planned.index + 1}/{plan.launches_each} {planned.environment} {planned.kernel} "
                f"({planned.device}): {record.status.replace('_', ' ')}"
                + (f": {record.message}" if record.message else "")
            )
    except BaseException:
        context.executor.stop()
        raise
    finally:
        pool.shutdown(wait=False)


def _measure(context: Context, planned: PlannedLaunch, launch: Launch | None, refused: Refusal | None) -> LaunchRecord:
    """Run and record a launch; None: its kernel was refused, or its environment is broken."""
    path = context.run.launch_path(planned.environment, planned.kernel, planned.device, planned.index)
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
            message=f"its kernel is not timed: {refused.stage}" if refused else "its environment is broken",
        )
        return save(context, path, broken)
    with device_held(context, planned.device):
        record = save(context, path, launch.run())
        if planned.device == "cuda" and record.status in ENDED_BADLY:
            check_device(context, planned.environment)
    return record
