"""Kernels and workloads as requests to the tasks of `harness.worker`."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from harness.config.plan import Plan
from harness.run.context import Context
from harness.schema.environment_records import BuildRecord
from harness.schema.records import Device
from harness.schema.run_records import WorkloadInfo
from harness.worker import codec, protocol, wire

EXPECTED_RECIPE = "independent"
ROOM_GIB = 2


def kernel_request(context: Context, name: str, device: Device, build_record: BuildRecord) -> wire.KernelRequest:
    kernel = context.kernel(name)
    if kernel.model_new is not None:
        return wire.KernelRequest(name=name, device=device, model_new=str(context.root / kernel.model_new))
    built = str(context.artifact(build_record, build_record.key))
    if kernel.prebuilt is not None:
        return wire.KernelRequest(name=name, device=device, prebuilt=built, entry=kernel.entry or "")
    return wire.KernelRequest(name=name, device=device, artifact=built)


def workload_request(context: Context, workload: WorkloadInfo) -> wire.WorkloadRequest:
    store = context.stores[workload.id].folder if workload.problem is not None else None
    same = {field.name for field in fields(wire.WorkloadRequest)} & vars(workload).keys()
    return wire.WorkloadRequest(
        **{name: getattr(workload, name) for name in same - {"backward", "problem"}},
        recipes=workload.trials,
        backward=workload.backward and workload.problem is None,
        problem=problem_request(context, workload, store),
    )


def problem_request(context: Context, workload: WorkloadInfo, store: Path | None) -> wire.ProblemRequest | None:
    """None of an attention."""
    if workload.problem is None:
        return None
    operator = codec.checked(wire.OperatorRequest, workload.operator, "operator") if workload.operator else None
    file = str(context.root / workload.problem) if operator is None else ""
    return wire.ProblemRequest(
        file=file, store=str(store), operator=operator, backward=workload.backward, compiled=workload.compiled
    )


def room_bytes(plan: Plan) -> int:
    """Of the files that a task may choose to leave: `limits.output_gib`, where that is given."""
    return int((plan.limits.output_gib or ROOM_GIB) * 2**30)


def files_of(kernel: wire.KernelRequest | None, *workloads: wire.WorkloadRequest) -> tuple[Path, ...]:
    """The files and folders that these requests name."""
    named = [kernel.artifact, kernel.model_new, kernel.library, kernel.prebuilt] if kernel else []
    if kernel and kernel.prebuilt and kernel.entry:  # its wheel lies unpacked beside it
        named.append(str(Path(kernel.prebuilt).with_name(protocol.UNPACKED)))
    for workload in workloads:
        if workload.problem is not None:
            named += [workload.problem.file, workload.problem.store]
    return tuple(dict.fromkeys(Path(name) for name in named if name))
