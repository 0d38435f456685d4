"""Validation: the candidate leaves bytes, and a process that never loads it judges them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from harness.config.matrix import Kernel
from harness.isolate import Answer, Task
from harness.run.context import Context, Store, checked, failure, fields_of
from harness.run.folders import now_utc
from harness.run.probe import check_device
from harness.run.requests import EXPECTED_RECIPE, files_of, kernel_request, room_bytes, workload_request
from harness.schema.records import Outcome, Status, ValidationRecord
from harness.schema.run_records import Cell, WorkloadInfo
from harness.tools import cache_lock
from harness.worker import codec, protocol, wire

ARRAY_TRIALS, ARRAY_BYTES = 2, 512 << 20  # outputs that are kept, to be crossed: of so many trials, while they fit


def store_folder(context: Context, workload: WorkloadInfo, environment: str) -> Path:
    """Where a problem's inputs and weights are, if they were made in this environment."""
    key = context.key("store", environment=environment, workload=workload.id)
    return context.cache / "stores" / f"{workload.name}-{key[:12]}"


def store_problem(context: Context, kernel: Kernel, workload: WorkloadInfo, environment: str) -> Store:
    """Make a problem file's inputs and weights once, in one environment, for all of them and for every kernel that
    solves it as this one does."""
    assert kernel.problem is not None
    folder = store_folder(context, workload, environment)
    out, done = folder / "out", folder / "complete.json"
    with cache_lock(context.cache, folder.name):
        if done.exists():
            return Store(out, content=protocol.digest(protocol.read_json(str(done))))
        shutil.rmtree(folder, ignore_errors=True)
        out.mkdir(parents=True)
        answer = context.executor.run(
            Task(
                environment=environment,
                name="store",
                request=wire.StoreRequest(
                    problem=str(context.root / kernel.problem),
                    out=str(out),
                    seed=context.plan.seed,
                    trials=workload.trials[EXPECTED_RECIPE],
                    dtype=workload.dtype,
                    most_bytes=room_bytes(context.plan),
                ),
                scratch=context.run.folder / "scratch" / f"store-{workload.id}",
                log=context.run.folder / "logs" / environment / f"store-{workload.id}.log",
                timeout_s=context.plan.limits.validation_s,
                reads=(context.root / kernel.problem,),
                writes=(out,),
            )
        )
        if answer.result is None:
            why = f"making the inputs of {kernel.problem} {answer.ended.how}: {answer.ended.log[-400:]}"
            return Store(None, why, failure(answer, "it").status)
        result = checked(wire.StoreResult, answer, f"making the inputs of {kernel.problem}")
        if result.status != protocol.OK:
            status: Status = protocol.KILLED if result.status == protocol.KILLED else protocol.CRASHED
            return Store(None, result.message, status)
        protocol.write_json(str(done), codec.dump(result))
        return Store(out, content=protocol.digest(codec.dump(result)))


def array_trials(workload: WorkloadInfo, targets: int) -> int:
    """Of each recipe, the trials whose outputs are kept: of all targets, and the truth in float64. At least one."""
    if workload.bytes is None or workload.flops is None:  # a problem file's outputs are not known before they are there
        return ARRAY_TRIALS
    output_bytes = workload.bytes / 4
    truth_bytes = output_bytes * (2 if workload.dtype == "float32" else 4)
    fit = ARRAY_BYTES / len(workload.trials) // (targets * output_bytes + truth_bytes)
    return max(1, min(ARRAY_TRIALS, int(fit)))


def _identity(context: Context, cell: Cell, key: str) -> dict[str, Any]:
    workload = context.plan.workload(cell.workload)
    return {
        **cell.model_dump(),
        "key": key,
        "decides": context.plan.tolerances.decides,
        "deterministic": context.plan.kernel(cell.kernel).deterministic,
        "limits": context.plan.tolerances.limits(workload.dtype),
        "started_utc": now_utc(),
    }


def not_validated(
    context: Context, cell: Cell, key: str, message: str, status: Status = protocol.NOT_RUN
) -> ValidationRecord:
    """The row of a cell that could not be validated."""
    return ValidationRecord(**_identity(context, cell, key), status=status, message=message, duration_s=0)


def keep_outputs(out: Path, workload: WorkloadInfo) -> None:
    """Remove the files that the judge would not read: they may be anything. Links stay, for it to name them."""
    wanted = {
        f"{recipe}/{trial}{suffix}.bin"
        for recipe, trials in workload.trials.items()
        for trial in range(trials)
        for suffix in ("", ".repeat")
    } | set(workload.trials)  # what stands in a folder's place is for the judge to name, too
    for path in out.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.relative_to(out).as_posix() not in wanted:
            path.unlink()


def validate(context: Context, cell: Cell) -> ValidationRecord:
    """Run the candidate, let it end, and judge the bytes it left in a process that never loads it."""
    plan, run = context.plan, context.run
    workload = plan.workload(cell.workload)
    environment = context.environments[cell.environment]
    built = context.builds[cell.environment, cell.kernel, cell.device]
    key = context.key("validation", **cell.model_dump())
    if environment.status != protocol.OK:
        return not_validated(context, cell, key, environment.message, protocol.BROKEN)
    if workload.problem and context.stores[workload.id].folder is None:
        return not_validated(context, cell, key, context.stores[workload.id].why, context.stores[workload.id].status)
    identity = _identity(context, cell, key)

    place = f"{cell.kernel}-{cell.device}-{cell.workload}"
    logs = run.folder / "logs" / cell.environment
    scratch = run.folder / "scratch" / cell.environment / place
    out = scratch.with_name(place + ".out")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    request = workload_request(context, workload)
    threads = plan.threads_in(cell.environment)
    candidate_failure: Outcome | None = None
    candidate: wire.CandidateResult | None = None
    duration_s = 0.0
    if built.status == protocol.OK:
        kernel = kernel_request(context, cell.kernel, cell.device, built)
        answer = context.executor.run(
            Task(
                environment=cell.environment,
                name="candidate",
                request=wire.CandidateRequest(
                    workload=request, seed=plan.seed, threads=threads, kernel=kernel, out=str(out)
                ),
                scratch=scratch,
                log=logs / f"candidate-{place}.log",
                timeout_s=plan.limits.validation_s,
                reads=files_of(kernel, request),
                writes=(out,),
                compiles=context.kernel(cell.kernel).model_new is not None,
            )
        )
        duration_s += answer.ended.duration_s
        if answer.result is None:
            candidate_failure = failure(answer, "the kernel's process")
            if cell.device == "cuda":
                check_device(context, cell.environment)
        else:
            candidate = candidate_result(answer)
    else:
        candidate_failure = Outcome(status=built.status, message=built.message, log_excerpt=built.log_excerpt)

    keep_outputs(out, workload)
    arrays = Path("arrays") / cell.environment / f"{cell.kernel}-{cell.device}" / f"{cell.workload}.npz"
    (run.folder / arrays).parent.mkdir(parents=True, exist_ok=True)
    truth = run.folder / "scratch" / "truth" / cell.workload
    # Of another precision yardsticks are made anew, and kept only while truths still are.
    truth_known = sum(1 for _ in truth.glob("*/*.unit")) >= sum(workload.trials.values())
    references = plan.kernel(cell.kernel).references_on(cell.device)
    answer = context.executor.run(
        Task(
            environment=cell.environment,
            name="judge",
            request=wire.JudgeRequest(
                workload=request,
                seed=plan.seed,
                threads=threads,
                device=cell.device,
                references=references,
                candidate=candidate,
                candidate_out=str(out),
                truth_dir=str(truth),
                arrays=str(run.folder / arrays),
                array_trials=array_trials(workload, 1 + len(references)),
                array_bytes=ARRAY_BYTES if workload.problem else None,
                decides=identity["decides"],
                deterministic=identity["deterministic"],
                limits=identity["limits"],
                precision=context.plan.kernel(cell.kernel).precision,
                power=True,
            ),
            scratch=scratch,
            log=logs / f"judge-{place}.log",
            timeout_s=plan.limits.validation_s,
            reads=(*files_of(None, request), out, truth),
            writes=(run.folder / arrays,) if truth_known else (truth, run.folder / arrays),
        )
    )
    if answer.result is None and cell.device == "cuda":
        check_device(context, cell.environment)
    shutil.rmtree(out, ignore_errors=True)
    duration_s = round(duration_s + answer.ended.duration_s, 3)
    stored_arrays = str(arrays) if (run.folder / arrays).is_file() else None
    result = checked(wire.JudgeResult, answer, "the judge")
    if not isinstance(result, wire.JudgeResult):
        return ValidationRecord(**identity, **fields_of(result), duration_s=duration_s)
    return ValidationRecord(
        **identity,
        choice=candidate.choice[:500] if candidate else "",
        native=native_of(candidate) if candidate else {},
        arrays=stored_arrays,
        duration_s=duration_s,
        **fields_of(result) | (fields_of(candidate_failure) if candidate_failure else {}),
    )


def candidate_result(answer: Answer) -> wire.CandidateResult:
    """What the kernel's process left, which may have been written by the kernel."""
    result = checked(wire.CandidateResult, answer, "its process")
    if isinstance(result, wire.CandidateResult):
        return result
    return wire.CandidateResult(protocol.CRASHED, wire.UNREADABLE)


def native_of(candidate: wire.CandidateResult) -> dict[str, str]:
    """The machine code that it says it brought, where that is said in few words."""
    pairs = candidate.native.items() if len(candidate.native) <= 100 else ()
    return dict(pairs) if all(len(text) <= 300 for pair in pairs for text in pair) else {}
