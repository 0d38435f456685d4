"""Environments made and proven, kernels built in them, and the inputs of problem files stored."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from harness.config.pins import ensure_pins
from harness.config.plan import PlannedBuild, PlannedEnvironment
from harness.errors import Unrecorded
from harness.isolate.prove import environment_record
from harness.progress import Display
from harness.run.build import build
from harness.run.context import Context, Store
from harness.run.folders import stored
from harness.run.hold import save
from harness.run.parallel import side_by_side
from harness.run.validate import store_folder, store_problem
from harness.schema.records import EnvironmentRecord
from harness.schema.storage import save_record
from harness.worker import protocol

NO_BASELINE = "no stored validation of the baseline: start `nox -s matrix` first"


def prepare_and_build(context: Context, display: Display) -> None:
    """Environments side by side: one installs, which waits for the network, while the other compiles."""
    plan, run = context.plan, context.run

    def one(environment: PlannedEnvironment) -> None:
        record = context.executor.prepare(environment, _pins(context, environment))
        if record.status == protocol.BROKEN and run.has_launches(environment.id):
            # What was measured stays, and is compared within its blocks: this may pass, and the run goes on then.
            raise Unrecorded(
                f"{environment.id}: {record.message}",
                "start the same command again when it is mended: the run goes on; or measure anew: --fresh",
            )
        context.environments[environment.id] = record
        save(context, run.environment_path(environment.id), record)
        what = "found" if record.reused else "made"
        display.step(f"{environment.id}: {what + ' and proven' if record.status == protocol.OK else record.message}")
        builds = [partial(_build, context, display, b) for b in plan.builds if b.environment == environment.id]
        side_by_side(builds, workers=builds_at_once(), stop=context.executor.stop)

    measured = [environment for environment in plan.environments if environment.id in plan.measured]
    side_by_side([partial(one, environment) for environment in measured], workers=2, stop=context.executor.stop)
    for environment in plan.environments:
        if environment.id not in plan.measured:
            _recall_environment(context, environment)


def builds_at_once() -> int:
    """Of one environment; of two environments they go on side by side, and each compiles two files at once."""
    return max(1, min(8, (os.cpu_count() or 1) // 4))


def _build(context: Context, display: Display, planned: PlannedBuild) -> None:
    built = build(context, planned)
    context.builds[planned.environment, planned.kernel, planned.device] = built
    save(context, context.run.build_path(planned.environment, planned.kernel, planned.device), built)
    how = "unchanged" if built.reused else built.status.replace("_", " ")
    display.step(
        f"{planned.environment}: build {planned.kernel} ({planned.device}): {how}"
        + (f": {built.message}" if built.message and built.status != protocol.OK else "")
    )


def _pins(context: Context, environment: PlannedEnvironment) -> Path | None:
    """An environment's pin file; None for the host's, which nobody pinned."""
    return None if environment.spec.is_host else ensure_pins(context.root, environment, context.matrix)[0]


def _recall_environment(context: Context, environment: PlannedEnvironment) -> None:
    """The baseline of an `eval`: not run, its stored records taken where their keys say that they still hold."""
    key = context.executor.key(environment, _pins(context, environment))
    place = context.run.environment_path(environment.id).relative_to(context.run.folder)
    found = (record for _, record in stored(context.root, place, EnvironmentRecord, key))
    known = next((r for r in found if r.status == protocol.OK and r.variables == environment.spec.variables), None)
    if known is None:
        known = environment_record(
            environment, executor=context.executor.name, key=key, status="not_run", message=NO_BASELINE
        )
    context.environments[environment.id] = known
    save_record(context.run.environment_path(environment.id), known)


def store_problems(context: Context) -> None:
    for workload in context.plan.workloads:
        if workload.problem is None:
            continue
        kernel = next(
            k
            for k in context.matrix.kernels
            if k.problem == workload.problem and workload.id in context.plan.kernel(k.name).workloads
        )
        order = [e for e in (context.plan.baseline, *context.plan.measured) if context.environments[e].key]
        there = [e for e in order if (store_folder(context, workload, e) / "complete.json").exists()]
        ready = [e for e in order if e in context.plan.measured and context.environment_ok(e)]
        maker = next(iter(there + ready), None)
        context.stores[workload.id] = (
            store_problem(context, kernel, workload, maker)
            if maker is not None
            else Store(None, "no environment is usable", protocol.CRASHED)
        )
