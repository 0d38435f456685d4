"""Stores: the inputs and weights of problem files, made once, in one environment, for all that solve the problem."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from harness.executors import Answer, Task
from harness.progress import Display
from harness.run.batches import in_batches, run_batch
from harness.run.context import Context, Store, checked, failure
from harness.run.requests import EXPECTED_RECIPE, problem_request, room_bytes
from harness.schema.run_records import WorkloadInfo
from harness.tools import cache_lock
from harness.worker import codec, protocol, wire


def store_problems(context: Context, display: Display) -> None:
    plan = context.plan
    makers: dict[str, str] = {}
    problems = [workload for workload in plan.workloads if workload.problem is not None]
    for workload in problems:
        order = [e for e in (plan.baseline, *plan.measured) if context.environments[e].key]
        usable = [e for e in order if e in plan.measured and context.environment_ok(e)]
        made = [e for e in order if (_folder(context, workload, e) / "complete.json").exists()]
        if made or usable:
            makers[workload.id] = (made + usable)[0]
        else:
            context.stores[workload.id] = Store(None, "no environment is usable", protocol.CRASHED)
    left = [workload for workload in problems if workload.id in makers]
    for batch in in_batches(left, lambda workload: makers[workload.id]):
        _store(context, display, batch, makers[batch[0].id])


def _folder(context: Context, workload: WorkloadInfo, environment: str) -> Path:
    """Where a problem's inputs and weights are, if they were made in this environment."""
    key = context.key("store", environment=environment, workload=workload.id)
    return context.cache / "stores" / f"{workload.name}-{key[:12]}"


def _store(context: Context, display: Display, workloads: Sequence[WorkloadInfo], environment: str) -> None:
    """Make what is not there, in one batch. Several workloads may have one store."""
    owners = {_folder(context, workload, environment): workload for workload in workloads}
    with contextlib.ExitStack() as locks:
        for folder in sorted(owners):  # so that two runs never wait for each other
            locks.enter_context(cache_lock(context.cache, folder.name))
        stores = {folder: known for folder in owners if (known := _known(folder))}
        left = [folder for folder in owners if folder not in stores]
        if left:
            display.note(f"making the inputs of {', '.join(owners[folder].id for folder in left)}")
        tasks = [_task(context, owners[folder], folder, environment) for folder in left]
        for folder, answer in zip(left, run_batch(context, tasks, "cpu"), strict=True):
            stores[folder] = _made(folder, answer, f"making the inputs of {owners[folder].problem}")
    for workload in workloads:
        context.stores[workload.id] = stores[_folder(context, workload, environment)]


def _known(folder: Path) -> Store | None:
    with contextlib.suppress(OSError, ValueError):  # it is not there, or damaged
        return Store(folder / "out", content=protocol.digest(protocol.read_json(str(folder / "complete.json"))))
    return None


def _task(context: Context, workload: WorkloadInfo, folder: Path, environment: str) -> Task:
    out = folder / "out"
    asked = problem_request(context, workload, out)
    assert asked is not None
    shutil.rmtree(folder, ignore_errors=True)
    out.mkdir(parents=True)
    request = wire.StoreRequest(
        problem=asked.file,
        operator=asked.operator,
        out=str(out),
        seed=context.plan.seed,
        trials=workload.trials[EXPECTED_RECIPE],
        dtype=workload.dtype,
        most_bytes=room_bytes(context.plan),
    )
    return context.task(
        "store",
        request,
        environment,
        workload.id,
        timeout_s=context.plan.limits.validation_s,
        reads=(Path(asked.file),) if asked.file else (),
        writes=(out,),
    )


def _made(folder: Path, answer: Answer, doing: str) -> Store:
    if answer.result is None:
        ended = failure(answer, doing)
        last = "" if ended.fault is not protocol.Fault.SUBJECT else f": {answer.ended.log[-400:]}"
        return Store(None, f"{ended.message}{last}", ended.status, fault=ended.fault)
    result = checked(wire.StoreResult, answer, doing)
    if not isinstance(result, wire.StoreResult) or result.status != protocol.OK:
        return Store(None, result.message, result.status, fault=result.fault)
    made = codec.dump(result)
    protocol.write_json(str(folder / "complete.json"), made)
    return Store(folder / "out", content=protocol.digest(made))
