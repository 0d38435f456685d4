"""Cells validated, their outputs crossed, and, where that is asked, who may be timed at all."""

from __future__ import annotations

import os
import shutil
from functools import partial
from typing import Any

from harness.config import keys
from harness.experiments.admission import Refusal, experiments, refusals
from harness.progress import Display
from harness.run.builds import NO_BASELINE
from harness.run.context import Context
from harness.run.folders import stored
from harness.run.hold import device_held, save
from harness.run.pairwise import cross
from harness.run.parallel import side_by_side
from harness.run.validate import not_validated, validate
from harness.schema.records import BuildRecord, CrossingRecord, Device, ValidationRecord
from harness.schema.run_records import Cell
from harness.schema.storage import load_record, save_record
from harness.worker import protocol

LARGE_BYTES = 1 << 30  # of a trial's tensors
DEVICES: tuple[Device, ...] = ("cpu", "cuda")


def validations_at_once(context: Context, device: Device) -> int:
    """One waits for imports, files and the GPU as long as it computes. Two that are large do not fit side by side."""
    stores = [store.folder for store in context.stores.values() if store.folder is not None]
    if any(protocol.read_json(str(folder / "index.json"))["trial_bytes"] > LARGE_BYTES for folder in stores):
        return 1
    return 2 if device == "cpu" else min(4, max(1, (os.cpu_count() or 1) // 4))


def validate_all(context: Context, display: Display, *, fresh: bool) -> None:
    """Side by side, since nothing is timed: of each workload one cell first, which computes the truth for all."""
    for device in DEVICES:
        cells = [cell for cell in context.plan.cells if cell.device == device]
        first = list({(cell.kernel, cell.workload): cell for cell in reversed(cells)}.values())
        for some in (first, [cell for cell in cells if cell not in first]):
            if some:
                calls = [partial(_validate_cell, context, display, cell, fresh=fresh) for cell in some]
                with device_held(context, device):
                    side_by_side(calls, workers=validations_at_once(context, device), stop=context.executor.stop)
    shutil.rmtree(context.run.folder / "scratch" / "truth", ignore_errors=True)


def _validate_cell(context: Context, display: Display, cell: Cell, *, fresh: bool) -> None:
    path = context.run.validation_path(cell)
    measured = cell.environment in context.plan.measured
    key = context.key("validation", **cell.model_dump())
    known = load_record(path, ValidationRecord) if path.exists() else None  # a damaged one is refused now
    if known is not None and known.key == key and (measured or known.status != protocol.NOT_RUN):
        display.step(f"validated before: {cell.id}")
        return
    if not fresh and _recall(context, cell, key):
        display.step(f"validation unchanged: {cell.id}")
        return
    record = validate(context, cell) if measured else not_validated(context, cell, key, NO_BASELINE)
    record = save(context, path, record)
    display.step(
        f"validate {cell.id}: {record.status.replace('_', ' ')}" + (f": {record.message}" if record.message else "")
    )


def _recall(context: Context, cell: Cell, key: str) -> bool:
    """A validation with this key from an earlier run, copied here with its arrays and its build record."""
    run = context.run
    for other, record in stored(context.root, run.validation_path(cell).relative_to(run.folder), ValidationRecord, key):
        if record.status not in protocol.RAN:
            continue
        if record.arrays and (other.folder / record.arrays).is_file():
            target = run.folder / record.arrays
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(other.folder / record.arrays, target)
        build_path = run.build_path(cell.environment, cell.kernel, cell.device)
        if not build_path.exists():
            theirs = other.build_path(cell.environment, cell.kernel, cell.device)
            if theirs.is_file():
                save_record(build_path, load_record(theirs, BuildRecord))
        save_record(run.validation_path(cell), record)
        return True
    return False


def cross_all(context: Context, display: Display) -> None:
    """From stored outputs, without running anything: of large workloads that takes a while."""
    plan, run = context.plan, context.run
    for kernel, device, workload in dict.fromkeys((c.kernel, c.device, c.workload) for c in plan.cells):
        path = run.crossing_path(kernel, device, workload)
        cells = [c for c in plan.cells if (c.kernel, c.device, c.workload) == (kernel, device, workload)]
        validations = [load_record(run.validation_path(c), ValidationRecord) for c in cells]
        key = keys.of("crossing", validations=[outputs_of(validation) for validation in validations])
        if path.exists() and load_record(path, CrossingRecord).key == key:
            continue
        record = cross(kernel, plan.workload(workload), device, validations, run.folder)
        if record is not None:
            save_record(path, record.model_copy(update={"key": key}))
            display.note(f"crossed {len(record.pairs)} pairs of outputs: {kernel}/{workload}/{device}")


def outputs_of(validation: ValidationRecord) -> list[Any]:
    """What a crossing depends on of it: whose outputs, and their bits."""
    results = [(recipe.recipe, target) for recipe in validation.recipes for target in recipe.targets]
    digests = [[recipe, target.target, target.output_sha256] for recipe, target in results]
    return [validation.environment, validation.key, digests]


def admit(context: Context, display: Display) -> dict[str, Refusal]:
    """By kernel, those that may not be timed, after the experiments that this takes."""
    for device in DEVICES:
        calls = experiments(context, display, device, partial(save, context))
        if calls:
            with device_held(context, device):
                side_by_side(calls, workers=validations_at_once(context, device), stop=context.executor.stop)
    refused = refusals(context.run, context.plan.cells)
    for kernel, why in refused.items():
        display.note(f"not timed: {kernel}: {why.stage} in {why.environment}: {why.outcome.message}")
    return refused
