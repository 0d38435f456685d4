"""Validation: the candidate leaves bytes, and a process that never loads it judges them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from harness.config.matrix import Tolerances
from harness.executors import Answer, Task
from harness.progress import Display
from harness.run.batches import in_batches, run_batch
from harness.run.context import Context, checked, failure, fields_of
from harness.run.environments import NO_BASELINE
from harness.run.folders import now_utc
from harness.run.memo import is_recorded, ran
from harness.run.parallel import run_parallel
from harness.run.requests import files_of, kernel_request, workload_request
from harness.schema.environment_records import BuildRecord
from harness.schema.records import DEVICES, Device, Outcome, Status, ValidationRecord
from harness.schema.run_records import Cell, KernelInfo, WorkloadInfo
from harness.schema.storage import Run, load_record, save_record
from harness.worker import protocol, wire
from harness.worker.protocol import Fault

ARRAY_TRIALS, ARRAY_BYTES = 2, 512 << 20  # outputs that are kept, to be compared: of so many trials, while they fit
AT_ONCE, AT_ONCE_CPU = 4, 2  # validations, at most
LARGE_BYTES = 1 << 30  # of a trial's tensors
SHARED_BYTES = 256 << 20  # of a cell's outputs, which lie on the disk until the whole batch is judged


def validate_all(context: Context, display: Display, *, fresh: bool) -> None:
    """Of each workload one cell first, which computes the truth for all."""
    for device in DEVICES:
        cells = [cell for cell in context.plan.cells if cell.device == device]
        first = list({(cell.kernel, cell.workload): cell for cell in reversed(cells)}.values())[::-1]
        for some in (first, [cell for cell in cells if cell not in first]):
            left = [cell for cell in some if not _is_known(context, display, cell, fresh=fresh)]
            _validate_some(context, display, device, left)
    shutil.rmtree(context.run.folder / "scratch" / "truth", ignore_errors=True)


def _validate_some(context: Context, display: Display, device: Device, cells: Sequence[Cell]) -> None:
    batches = in_batches(cells, partial(_batch_of, context), _count_workers(context, device))
    run_validations(context, device, [partial(_validate, context, display, batch) for batch in batches])


def run_validations(context: Context, device: Device, calls: Sequence[Callable[[], None]]) -> None:
    """Make several calls at once, since nothing is timed: one waits for imports, files and the GPU as long as it
    computes."""
    if calls:
        with context.hold(device):
            run_parallel(calls, workers=_count_workers(context, device), stop=context.executor.stop)


def _count_workers(context: Context, device: Device) -> int:
    """Return how many validations run at once. Two large ones do not fit."""
    if any(_trial_bytes(context, each) > LARGE_BYTES for each in context.plan.workloads if each.problem is not None):
        return 1
    return AT_ONCE_CPU if device == "cpu" else min(AT_ONCE, max(1, (os.cpu_count() or 1) // 4))


def _trial_bytes(context: Context, workload: WorkloadInfo) -> float:
    """Return the bytes of a trial's tensors; 0 where they are not known."""
    if workload.problem is None:
        return workload.bytes or 0
    store = context.stores[workload.id].folder
    return float(protocol.read_json(str(store / "index.json"))["trial_bytes"]) if store else 0


def _is_known(context: Context, display: Display, cell: Cell, *, fresh: bool) -> bool:
    """Whether this run has its record, or has taken it from an earlier one."""
    run, path, key = context.run, context.run.validation_path(cell), _key(context, cell)
    known = load_record(path, ValidationRecord) if path.exists() else None
    holds = known is not None and known.key == key and has_outputs(run, known)
    if holds and (cell.environment in context.plan.measured or ran(known)):
        display.step(f"validated before: {cell.id}")
        return True
    if known is not None:
        path.unlink()
    if fresh or not is_recorded(context, path, ValidationRecord, key, partial(_take, context, cell)):
        return False
    display.step(f"validation unchanged: {cell.id}")
    return True


def _take(context: Context, cell: Cell, other: Run, record: ValidationRecord) -> bool:
    """Copy what belongs to another run's validation: its arrays and its build. Return whether that is all there."""
    if not ran(record) or not has_outputs(other, record):
        return False
    if record.arrays:
        target = context.run.folder / record.arrays
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(other.folder / record.arrays, target)
    build_path = context.run.build_path(cell.environment, cell.kernel, cell.device)
    theirs = other.build_path(cell.environment, cell.kernel, cell.device)
    if not build_path.exists() and theirs.is_file():
        save_record(build_path, load_record(theirs, BuildRecord))
    return True


def _batch_of(context: Context, cell: Cell) -> str:
    """Return the batch in which a cell is validated; '': its processes are its own.

    What `torch.compile` generates is compiled in a process of its own.
    """
    workload = context.plan.workload(cell.workload)
    stored_bytes = 2 * _trial_bytes(context, workload) * sum(workload.trials.values())  # each output twice
    return "" if workload.compiled or stored_bytes > SHARED_BYTES else cell.environment


def _validate(context: Context, display: Display, cells: Sequence[Cell]) -> None:
    for cell, made in zip(cells, validate(context, cells), strict=True):
        record = context.save(context.run.validation_path(cell), made)
        why = f": {record.message}" if record.message else ""
        display.step(f"validate {cell.id}: {record.status.replace('_', ' ')}{why}")


def has_outputs(run: Run, validation: ValidationRecord) -> bool:
    """Whether the outputs that it says it kept are there."""
    return validation.arrays is None or (run.folder / validation.arrays).is_file()


def array_trials(workload: WorkloadInfo, targets: int) -> int:
    """Of each recipe, the trials whose outputs are kept: of all targets, and the truth in float64. At least one."""
    if workload.bytes is None or workload.flops is None:  # a problem file's outputs are not known before they are there
        return ARRAY_TRIALS
    output_bytes = workload.bytes / 4
    truth_bytes = output_bytes * (2 if workload.dtype == "float32" else 4)
    fit = ARRAY_BYTES / len(workload.trials) // (targets * output_bytes + truth_bytes)
    return max(1, min(ARRAY_TRIALS, int(fit)))


def _identity(
    cell: Cell, kernel: KernelInfo, workload: WorkloadInfo, tolerances: Tolerances, key: str
) -> dict[str, Any]:
    """What a validation's record says of what was validated, and by which rule."""
    return {
        **vars(cell),
        "key": key,
        "decides": tolerances.decides,
        "deterministic": kernel.deterministic,
        "limits": tolerances.limits(workload.dtype),
        "started_utc": now_utc(),
    }


def row_without_result(
    cell: Cell,
    kernel: KernelInfo,
    workload: WorkloadInfo,
    tolerances: Tolerances,
    message: str,
    *,
    key: str = "",
    status: Status = protocol.NOT_RUN,
    fault: Fault = Fault.SUBJECT,
) -> ValidationRecord:
    """The row of a cell that could not be validated."""
    identity = _identity(cell, kernel, workload, tolerances, key)
    return ValidationRecord(**identity, status=status, message=message, fault=fault, duration_s=0)


def not_validated(
    context: Context,
    cell: Cell,
    key: str,
    message: str,
    status: Status = protocol.NOT_RUN,
    fault: Fault = Fault.SUBJECT,
) -> ValidationRecord:
    """The same, of a run's plan."""
    plan = context.plan
    of = plan.kernel(cell.kernel), plan.workload(cell.workload), plan.tolerances
    return row_without_result(cell, *of, message, key=key, status=status, fault=fault)


def keep_outputs(out: Path, workload: WorkloadInfo) -> None:
    """Remove the files that the judge would not read: they may be anything. Links stay, for it to name them."""
    wanted = {
        f"{recipe}/{trial}{suffix}.bin"
        for recipe, trials in workload.trials.items()
        for trial in range(trials)
        for suffix in ("", ".repeat")
    } | set(workload.trials)  # what stands in a folder's place is for the judge to name too
    for path in out.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.relative_to(out).as_posix() not in wanted:
            path.unlink()


class PendingJudgement(NamedTuple):
    """A validation whose judge is to run."""

    task: Task
    identity: dict[str, Any]
    out: Path  # the candidate's outputs
    arrays: Path  # in the run's folder
    candidate: KernelRun


class KernelRun(NamedTuple):
    """What came of a candidate. Its outputs are in a folder of its own."""

    result: wire.CandidateResult | None = None  # None of PyTorch's own operators, and of a process that left nothing
    failed: Outcome | None = None  # why there is no output
    duration_s: float = 0.0


def validate(context: Context, cells: Sequence[Cell]) -> list[ValidationRecord]:
    """Run the candidates, let them end, and judge the bytes they left in a process that never loads them.

    Several cells are of one batch. Their judges share a process; candidates do where they are of one kernel.
    """
    records = {cell: record for cell in cells if (record := _not_testable(context, cell)) is not None}
    left = [cell for cell in cells if cell not in records]
    candidates: dict[Cell, KernelRun] = {}
    for kernel in dict.fromkeys(cell.kernel for cell in left):
        candidates |= _run_candidates(context, [cell for cell in left if cell.kernel == kernel])
    made = [_judging(context, cell, candidates[cell]) for cell in left]
    answers = run_batch(context, [each.task for each in made], cells[0].device)
    for cell, judging, answer in zip(left, made, answers, strict=True):
        records[cell] = _record(context, judging, answer)
    return [records[cell] for cell in cells]


def _not_testable(context: Context, cell: Cell) -> ValidationRecord | None:
    """Return the record of a cell that cannot be validated."""
    plan, environment, key = context.plan, context.environments[cell.environment], _key(context, cell)
    workload = plan.workload(cell.workload)
    if cell.environment not in plan.measured:
        return not_validated(context, cell, key, NO_BASELINE)
    if environment.status != protocol.OK:
        return not_validated(context, cell, key, environment.message, protocol.BROKEN)
    if workload.problem and (store := context.stores[workload.id]).folder is None:
        return replace(not_validated(context, cell, key, store.why, store.status, store.fault), loads=False)
    return None


def _out(context: Context, cell: Cell) -> Path:
    return context.scratch(cell.environment, f"{_about(cell)}.out")


def _run_candidates(context: Context, cells: Sequence[Cell]) -> dict[Cell, KernelRun]:
    """Run one kernel, or one of PyTorch's own, on the workloads of these cells."""
    first, found = cells[0], {}
    built = context.builds[first.environment, first.kernel, first.device]
    for cell in cells:
        shutil.rmtree(_out(context, cell), ignore_errors=True)
    if built.status != protocol.OK:
        return {cell: KernelRun(failed=built.ended()) for cell in cells}
    if context.plan.kernel(first.kernel).pytorch:
        return {cell: KernelRun() for cell in cells}
    answers = run_batch(context, [_candidate_task(context, cell, built) for cell in cells], first.device)
    for cell, answer in zip(cells, answers, strict=True):
        keep_outputs(_out(context, cell), context.plan.workload(cell.workload))
        if answer.result is None:
            found[cell] = KernelRun(None, failure(answer, "the kernel's process"), answer.ended.duration_s)
        else:
            found[cell] = KernelRun(candidate_result(answer), None, answer.ended.duration_s)
    return found


def _candidate_task(context: Context, cell: Cell, built: BuildRecord) -> Task:
    plan, out = context.plan, _out(context, cell)
    out.mkdir(parents=True)
    request = workload_request(context, plan.workload(cell.workload))
    kernel = kernel_request(context, cell.kernel, cell.device, built)
    threads = plan.threads_in(cell.environment)
    return context.task(
        "candidate",
        wire.CandidateRequest(workload=request, seed=plan.seed, threads=threads, kernel=kernel, out=str(out)),
        cell.environment,
        _about(cell),
        timeout_s=plan.limits.validation_s,
        reads=files_of(kernel, request),
        writes=(out,),
    )


def _judging(context: Context, cell: Cell, candidate: KernelRun) -> PendingJudgement:
    """Return a cell whose candidate ran, with the task that judges it."""
    plan, run, info = context.plan, context.run, context.plan.kernel(cell.kernel)
    workload, out = plan.workload(cell.workload), _out(context, cell)
    identity = _identity(cell, info, workload, plan.tolerances, _key(context, cell))
    arrays = Path("arrays") / cell.environment / f"{cell.kernel}-{cell.device}" / f"{cell.workload}.npz"
    (run.folder / arrays).parent.mkdir(parents=True, exist_ok=True)
    request = workload_request(context, workload)
    truth = context.truth_folder(workload, cell.environment)
    # With another precision error scales are made anew, and kept only while truths still are.
    truth_known = sum(1 for _ in truth.glob("*/*.unit")) >= sum(workload.trials.values())
    references = info.references_on(cell.device)
    judge = wire.JudgeRequest(
        workload=request,
        seed=plan.seed,
        threads=plan.threads_in(cell.environment),
        device=cell.device,
        references=references,
        candidate=candidate.result,
        subject=protocol.MODEL if info.pytorch else protocol.KERNEL,
        candidate_out=str(out),
        truth_dir=str(truth),
        arrays=str(run.folder / arrays),
        array_trials=array_trials(workload, 1 + len(references)),
        array_bytes=ARRAY_BYTES if workload.problem else None,
        decides=identity["decides"],
        deterministic=identity["deterministic"],
        limits=identity["limits"],
        precision=info.precision,
        power=not info.pytorch,  # nobody tries to get past the check
    )
    task = context.task(
        "judge",
        judge,
        cell.environment,
        _about(cell),
        timeout_s=plan.limits.validation_s,
        reads=(*files_of(None, request), out, truth),
        writes=(run.folder / arrays,) if truth_known else (truth, run.folder / arrays),
    )
    return PendingJudgement(task, identity, out, arrays, candidate)


def _record(context: Context, judging: PendingJudgement, answer: Answer) -> ValidationRecord:
    """What the judge said, as the cell's record."""
    _, identity, out, arrays, candidate = judging
    shutil.rmtree(out, ignore_errors=True)
    duration_s = round(candidate.duration_s + answer.ended.duration_s, 3)
    # The judge never loads a kernel. PyTorch's own operators run in it.
    of_pytorch = context.plan.kernel(identity["kernel"]).pytorch
    result = checked(wire.JudgeResult, answer, "the judge", holds_subject=of_pytorch)
    if not isinstance(result, wire.JudgeResult):
        return ValidationRecord(**identity, **fields_of(result), duration_s=duration_s)
    return ValidationRecord(
        **identity,
        loads=candidate.result.loads if candidate.result else True,
        choice=candidate.result.choice[:500] if candidate.result else "",
        native=native_of(candidate.result) if candidate.result else {},
        arrays=str(arrays) if (context.run.folder / arrays).is_file() else None,
        duration_s=duration_s,
        **fields_of(result) | (fields_of(candidate.failed) if candidate.failed else {}),
    )


def _key(context: Context, cell: Cell) -> str:
    return context.key("validation", **vars(cell))


def _about(cell: Cell) -> str:
    return f"{cell.kernel}-{cell.device}-{cell.workload}"


def candidate_result(answer: Answer) -> wire.CandidateResult:
    """What the kernel's process left, which may have been written by the kernel."""
    result = checked(wire.CandidateResult, answer, "its process")
    if isinstance(result, wire.CandidateResult):
        return result
    return wire.CandidateResult(protocol.CRASHED, wire.UNREADABLE)


def native_of(candidate: wire.CandidateResult) -> dict[str, str]:
    """The machine code that it says it brought: untrusted text, so only if it is short."""
    pairs = candidate.native.items() if len(candidate.native) <= 100 else ()
    return dict(pairs) if all(len(text) <= 300 for pair in pairs for text in pair) else {}
