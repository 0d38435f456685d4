"""Launches, one after another, and what the device they use can do at most."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from harness.config.plan import PlannedLaunch
from harness.experiments.admission import Refusal
from harness.progress import Display
from harness.run.ceilings import ceiling_key, device_name, measure_ceilings
from harness.run.context import Context
from harness.run.folders import now_utc, stored
from harness.run.hold import device_held, save
from harness.run.launch import Launch, goes_ahead
from harness.run.probe import check_device
from harness.schema.records import CeilingRecord, LaunchRecord, ValidationRecord
from harness.schema.storage import load_record, save_record
from harness.worker import protocol

ENDED_BADLY = (protocol.CRASHED, protocol.TIMED_OUT, protocol.KILLED)


def launches_of(
    context: Context, due: Sequence[PlannedLaunch], refused: Mapping[str, Refusal]
) -> dict[PlannedLaunch, Launch]:
    """Those that can be made, of what is due: neither of a broken environment nor of a refused kernel."""
    validations: dict[tuple[str, str, str], dict[str, ValidationRecord]] = {}
    for cell in context.plan.cells:
        validation = load_record(context.run.validation_path(cell), ValidationRecord)
        validations.setdefault((cell.environment, cell.kernel, cell.device), {})[cell.workload] = validation
    return {
        p: Launch(context, p, validations[p.environment, p.kernel, p.device])
        for p in due
        if context.environment_ok(p.environment) and p.kernel not in refused
    }


def _waiting(
    context: Context, due: Sequence[PlannedLaunch], launches: Mapping[PlannedLaunch, Launch]
) -> list[PlannedLaunch]:
    """Those that are not recorded, or under another key: as of a kernel that can be called now on more workloads."""

    def is_recorded(planned: PlannedLaunch) -> bool:
        path = context.run.launch_path(planned.environment, planned.kernel, planned.device, planned.index)
        if planned not in launches or not path.exists():
            return path.exists()
        return load_record(path, LaunchRecord).key == launches[planned].key

    return [planned for planned in due if not is_recorded(planned)]


def find_ceilings(
    context: Context, display: Display, due: Sequence[PlannedLaunch], launches: Mapping[PlannedLaunch, Launch]
) -> None:
    """Of the device that CUDA launches use, by the baseline's PyTorch, else by the first that is usable. Those of
    another run where all launches are another's."""
    plan, run = context.plan, context.run
    usable = {launch.environment for launch in launches if launch.device == "cuda"}
    environment = next((id for id in (plan.baseline, *plan.measured) if id in usable), None)
    if environment is None:
        return
    path = run.ceiling_path(device_name(context, environment)[0])
    if path.exists():
        return
    if not any(launch.device == "cuda" for launch in _waiting(context, due, launches)):
        key = ceiling_key(context, environment)
        for _, known in stored(context.root, path.relative_to(run.folder), CeilingRecord, key):
            save_record(path, known)
            return
    with device_held(context, "cuda"):
        record = save(context, path, measure_ceilings(context, environment))
        if record.status in ENDED_BADLY:
            check_device(context, environment)
    display.note(f"ceilings of {record.device_name}: {record.message or record.status}")


def launch_all(
    context: Context,
    display: Display,
    due: Sequence[PlannedLaunch],
    launches: Mapping[PlannedLaunch, Launch],
    refused: Mapping[str, Refusal],
) -> None:
    """One after another. Where it may, the next one gets ready meanwhile. Refused kernels are not launched."""
    plan = context.plan
    waiting = _waiting(context, due, launches)
    pool = ThreadPoolExecutor(2)  # the launch that measures, and the one that gets ready
    try:
        for planned, following in itertools.zip_longest(waiting, waiting[1:]):
            if following is not None and following in launches and goes_ahead(context.executor, following.device):
                launches[following].prepare(pool)
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
