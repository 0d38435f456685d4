"""What compiles at run time: the code that is generated for it, with empty caches.

Each environment compiles it in two fresh processes. Where they do not generate the same, nothing of another
environment's code follows from a difference.
"""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

from harness.config.matrix import Matrix
from harness.config.plan import Plan
from harness.experiments.profile import unavailable
from harness.progress import Display
from harness.run.context import Context, checked, fields_of
from harness.run.device import run_task
from harness.run.folders import now_utc
from harness.run.memo import is_recorded
from harness.run.requests import files_of, kernel_request, workload_request
from harness.schema.compiled_records import Compilation, CompiledRecord
from harness.schema.records import Device, Outcome
from harness.schema.run_records import Cell
from harness.schema.storage import Run
from harness.worker import protocol, wire

EXPERIMENT = "compiled"
SAMPLES = 2
COMPILES = re.compile(r"\btorch\s*\.\s*compile\b|\btriton\b")  # in the text of a file that may
Subject = tuple[str, str, Device]


def subjects(root: Path, matrix: Matrix, plan: Plan) -> dict[Subject, list[Cell]]:
    """The measured cells of what compiles at run time: operators under torch.compile, and Python files that name it or
    Triton."""
    found: dict[Subject, list[Cell]] = {}
    for cell in plan.cells:
        if cell.environment in plan.measured and _compiles(root, matrix, plan, cell):
            found.setdefault((cell.kernel, cell.workload, cell.device), []).append(cell)
    return found


def _compiles(root: Path, matrix: Matrix, plan: Plan, cell: Cell) -> bool:
    file = matrix.kernel(cell.kernel).model_new
    if not file:
        return plan.workload(cell.workload).compiled
    return bool(COMPILES.search((root / file).read_text(encoding="utf-8", errors="replace")))


def record_path(run: Run, cell: Cell) -> Path:
    return run.experiment_path(cell.environment, cell.kernel, cell.device, cell.workload, EXPERIMENT)


def unsampled(root: Path, matrix: Matrix, plan: Plan, run: Run) -> bool:
    """Whether a run lacks samples of something that compiles."""
    cells = (cell for group in subjects(root, matrix, plan).values() for cell in group)
    return any(not record_path(run, cell).exists() for cell in cells)


def sample_all(context: Context, display: Display) -> None:
    """Compile what the run lacks, and another run does not hold either."""
    for cells in subjects(context.root, context.matrix, context.plan).values():
        for cell in cells:
            if _recorded(context, cell):
                continue
            with context.hold(cell.device):
                record = compile_cell(context, cell)
            context.save(record_path(context.run, cell), record)
            display.note(f"code generated for {cell.id}: {record.message or f'{len(record.generated)} files'}")


def compiled_key(context: Context, cell: Cell) -> str:
    return context.key(EXPERIMENT, **vars(cell), asked=SAMPLES)


def _recorded(context: Context, cell: Cell) -> bool:
    """Return whether this run holds the record, or another one, from which it is copied."""
    return is_recorded(context, record_path(context.run, cell), CompiledRecord, compiled_key(context, cell))


def compile_cell(context: Context, cell: Cell) -> CompiledRecord:
    """Compile one cell in fresh processes; none any more once one has failed."""
    started, clock = now_utc(), time.monotonic()
    outcome = Outcome(status=protocol.OK)
    results: list[wire.CompiledResult] = []
    is_operator = context.plan.kernel(cell.kernel).pytorch
    if reason := unavailable(context, cell, protocol.MODEL if is_operator else protocol.KERNEL):
        outcome = Outcome(status=protocol.NOT_RUN, message=reason)
    while outcome.status == protocol.OK and len(results) < SAMPLES:
        result = _call(context, cell)
        if isinstance(result, wire.CompiledResult) and result.status == protocol.OK:
            results.append(result)
        else:
            outcome = result.ended()
    return CompiledRecord(
        **vars(cell),
        **fields_of(outcome),
        key=compiled_key(context, cell),
        started_utc=started,
        duration_s=round(time.monotonic() - clock, 3),
        samples=[Compilation(generated_sha256=_digest(result)) for result in results],
        generated=results[0].generated if results else [],
    )


def _digest(result: wire.CompiledResult) -> str:
    return protocol.digest([[each.kind, each.name, each.sha256] for each in result.generated])


def _call(context: Context, cell: Cell) -> wire.CompiledResult | Outcome:
    """Compile in one process, with caches of its own."""
    plan, about = context.plan, f"{cell.kernel}-{cell.device}-{cell.workload}"
    caches = context.scratch(cell.environment, f"{about}.caches")
    shutil.rmtree(caches, ignore_errors=True)
    caches.mkdir(parents=True)
    kernel = None
    if not plan.kernel(cell.kernel).pytorch:
        built = context.builds[cell.environment, cell.kernel, cell.device]
        kernel = kernel_request(context, cell.kernel, cell.device, built)
    workload = workload_request(context, plan.workload(cell.workload))
    request = wire.CompiledRequest(
        workload=workload,
        seed=plan.seed,
        threads=plan.threads_in(cell.environment),
        kernel=kernel,
        device=cell.device,
        caches=str(caches),
    )
    task = context.task(
        EXPERIMENT,
        request,
        cell.environment,
        about,
        log=f"{EXPERIMENT}-{about}",
        timeout_s=plan.limits.launch_s,
        reads=(*files_of(kernel, workload), caches),
        writes=(caches,),
    )
    try:
        return checked(wire.CompiledResult, run_task(context, task, cell.device), "the process that compiled it")
    finally:
        shutil.rmtree(caches, ignore_errors=True)
