"""Stores: the inputs and weights of problem files, made once, in one environment, for all that solve the problem."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from harness.run.context import Context, Store, answer_of, checked, failure
from harness.run.requests import EXPECTED_RECIPE, problem_request, room_bytes
from harness.schema.records import Status
from harness.schema.run_records import WorkloadInfo
from harness.tools import cache_lock
from harness.worker import codec, protocol, wire


def store_problems(context: Context) -> None:
    plan = context.plan
    for workload in plan.workloads:
        if workload.problem is None:
            continue
        order = [e for e in (plan.baseline, *plan.measured) if context.environments[e].key]
        usable = [e for e in order if e in plan.measured and context.environment_ok(e)]
        made = [e for e in order if (_folder(context, workload, e) / "complete.json").exists()]
        maker = next(iter(made + usable), None)
        context.stores[workload.id] = (
            store_problem(context, workload, maker)
            if maker is not None
            else Store(None, "no environment is usable", protocol.CRASHED)
        )


def _folder(context: Context, workload: WorkloadInfo, environment: str) -> Path:
    """Where a problem's inputs and weights are, if they were made in this environment."""
    key = context.key("store", environment=environment, workload=workload.id)
    return context.cache / "stores" / f"{workload.name}-{key[:12]}"


def store_problem(context: Context, workload: WorkloadInfo, environment: str) -> Store:
    folder = _folder(context, workload, environment)
    asked = problem_request(context, workload, folder / "out")
    assert asked is not None
    out, done = folder / "out", folder / "complete.json"
    with cache_lock(context.cache, folder.name):
        with contextlib.suppress(OSError, ValueError):  # it is not there, or damaged
            return Store(out, content=protocol.digest(protocol.read_json(str(done))))
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
        answer = answer_of(
            context,
            context.task(
                "store", request, environment, workload.id, timeout_s=context.plan.limits.validation_s,
                reads=(Path(asked.file),) if asked.file else (), writes=(out,),
            )
        )  # fmt: skip
        if answer.result is None:
            why = f"making the inputs of {workload.problem} {answer.ended.how}: {answer.ended.log[-400:]}"
            return Store(None, why, failure(answer, "it").status)
        result = checked(wire.StoreResult, answer, f"making the inputs of {workload.problem}")
        if not isinstance(result, wire.StoreResult) or result.status != protocol.OK:
            status: Status = protocol.KILLED if result.status == protocol.KILLED else protocol.CRASHED
            return Store(None, result.message, status)
        protocol.write_json(str(done), codec.dump(result))
        return Store(out, content=protocol.digest(codec.dump(result)))
