"""Environments made and proven, and the kernels built in them."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from harness.config.pins import ensure_pins
from harness.config.plan import PlannedBuild, PlannedEnvironment
from harness.errors import Unrecorded
from harness.executors.base import environment_record
from harness.progress import Display
from harness.run.build import build
from harness.run.context import Context
from harness.run.folders import stored
from harness.run.parallel import run_parallel
from harness.schema.environment_records import EnvironmentRecord
from harness.schema.storage import save_record
from harness.typed import typed
from harness.worker import protocol

NO_BASELINE = f"no stored validation of the baseline: start `{typed('matrix')}` first"


def prepare_and_build(context: Context, display: Display) -> None:
    """Two environments at once: one installs, which waits for the network, while the other compiles."""
    plan = context.plan
    measured = [environment for environment in plan.environments if environment.id in plan.measured]
    calls = [partial(_prepare_and_build, context, display, environment) for environment in measured]
    run_parallel(calls, workers=2, stop=context.executor.stop)
    for environment in plan.environments:
        if environment.id not in plan.measured:
            _recall(context, environment)


def _prepare_and_build(context: Context, display: Display, environment: PlannedEnvironment) -> None:
    record = context.executor.prepare(environment, _pins(context, environment))
    if record.status == protocol.BROKEN and context.run.has_launches(environment.id):
        # What was measured stays, and is compared within its blocks: this may pass, and the run goes on then.
        raise Unrecorded(
            f"{environment.id}: {record.message}",
            "start the same command again when it is mended: the run goes on; or measure anew: --fresh",
        )
    context.environments[environment.id] = record
    context.save(context.run.environment_path(environment.id), record)
    made = "found and proven" if record.reused else "made and proven"
    display.step(f"{environment.id}: {made if record.status == protocol.OK else record.message}")
    builds = [build for build in context.plan.builds if build.environment == environment.id]
    calls = [partial(_build, context, display, build) for build in builds]
    # Of one environment; two environments build at the same time, and each build compiles two files at once.
    run_parallel(calls, workers=max(1, min(8, (os.cpu_count() or 1) // 4)), stop=context.executor.stop)


def _build(context: Context, display: Display, planned: PlannedBuild) -> None:
    built = build(context, planned)
    context.builds[planned.environment, planned.kernel, planned.device] = built
    context.save(context.run.build_path(planned.environment, planned.kernel, planned.device), built)
    verb = "load" if context.kernel(planned.kernel).prebuilt else "build"
    result = "unchanged" if built.reused else "failed" if built.refused else built.status.replace("_", " ")
    why = f": {built.message}" if built.message and built.status != protocol.OK else ""
    display.step(f"{planned.environment}: {verb} {planned.kernel} ({planned.device}): {result}{why}")


def _pins(context: Context, environment: PlannedEnvironment) -> Path | None:
    """An environment's pin file; the host's has none."""
    return None if environment.spec.is_host else ensure_pins(context.root, environment, context.matrix)[0]


def _recall(context: Context, environment: PlannedEnvironment) -> None:
    """The baseline of an `eval`: not run, its stored records taken where their keys say that they still hold."""
    key = context.executor.key(environment, _pins(context, environment))
    path = context.run.environment_path(environment.id)
    records = (
        record for _, record in stored(context.root, path.relative_to(context.run.folder), EnvironmentRecord, key)
    )
    known = next((r for r in records if r.status == protocol.OK and r.variables == environment.spec.variables), None)
    if known is None:
        known = environment_record(
            environment, executor=context.executor.name, key=key, status="not_run", message=NO_BASELINE
        )
    context.environments[environment.id] = known
    save_record(path, known)
