"""Pairwise comparison: outputs of all environments against each other. Did the kernel move, or did a reference?"""

from __future__ import annotations

import itertools
import os
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.config import keys
from harness.config.plan import Plan
from harness.errors import RecordError
from harness.progress import Display
from harness.run.context import Context
from harness.schema.records import Crossing, CrossingRecord, Device, ValidationRecord
from harness.schema.storage import Run, load_record, save_record
from harness.worker import protocol

Arrays = Mapping[str, np.ndarray]
Pair = tuple[str, str]
BLOCK_ELEMENTS = 1 << 15


def as_float64(array: np.ndarray) -> np.ndarray:
    """Values of a stored output; bfloat16 is stored as its bits, in uint16."""
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64)


def differing(a: np.ndarray, b: np.ndarray) -> int:
    """Elements that are not the same: of one dtype by their bits, otherwise by their value."""
    if a.dtype == b.dtype:
        unsigned = f"u{a.dtype.itemsize}"
        return int(np.count_nonzero(np.ascontiguousarray(a).view(unsigned) != np.ascontiguousarray(b).view(unsigned)))
    one, two = as_float64(a), as_float64(b)
    return int(np.count_nonzero((one != two) & ~(np.isnan(one) & np.isnan(two))))


@dataclass
class Sums:
    """What a pair of outputs comes to, over trials: elements whose bits differ, and differences of finite elements."""

    trials: int = 0
    identical: int = 0
    elements: int = 0
    differing: int = 0
    finite: int = 0
    total: float = 0.0
    largest: float | None = None

    def add(self, other: Sums) -> None:
        for name in ("trials", "identical", "elements", "differing", "finite", "total"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.largest is not None:
            self.largest = other.largest if self.largest is None else max(self.largest, other.largest)


def compare_block(outputs: Arrays) -> dict[Pair, Sums]:
    """Every pair of the same elements of all outputs. Values are made float64 once, and not once a pair."""
    values = {name: as_float64(block) for name, block in outputs.items()}
    by_pair = {}
    for one, two in itertools.combinations(outputs, 2):
        sums = Sums(elements=outputs[one].size, differing=differing(outputs[one], outputs[two]))
        if sums.differing:
            difference = np.abs(values[one] - values[two])
            finite = difference[np.isfinite(difference)]
            sums.finite, sums.total = finite.size, float(finite.sum())
            sums.largest = float(finite.max()) if finite.size else None
        else:
            sums.finite = int(np.count_nonzero(np.isfinite(values[one])))
            sums.largest = 0.0 if sums.finite else None
        by_pair[one, two] = sums
    return by_pair


def compare_trial(outputs: Arrays, pool: Executor) -> dict[Pair, Sums]:
    """Every pair of one trial's outputs, which are of one shape, in blocks that stay in a processor's cache."""
    flat = {name: np.ascontiguousarray(array).reshape(-1) for name, array in outputs.items()}
    size = next(iter(flat.values())).size

    def block(start: int) -> dict[Pair, Sums]:
        return compare_block({name: array[start : start + BLOCK_ELEMENTS] for name, array in flat.items()})

    by_pair = {pair: Sums(trials=1) for pair in itertools.combinations(outputs, 2)}
    for part in pool.map(block, range(0, size, BLOCK_ELEMENTS)):
        for pair, sums in part.items():
            by_pair[pair].add(sums)
    for (one, two), sums in by_pair.items():
        sums.identical = int(not sums.differing and outputs[one].dtype == outputs[two].dtype)
    return by_pair


def compare_recipe(trials: Iterable[Arrays]) -> dict[Pair, Sums]:
    """Every pair of outputs over all trials in which both are there, in one shape."""
    by_pair: dict[Pair, Sums] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # numpy lets go of the interpreter while it computes
        for outputs in trials:
            for shape in dict.fromkeys(array.shape for array in outputs.values()):
                alike = {name: array for name, array in outputs.items() if array.shape == shape}
                for pair, sums in compare_trial(alike, pool).items():
                    by_pair.setdefault(pair, Sums()).add(sums)
    return by_pair


def load_arrays(path: Path) -> Arrays:
    """Stored outputs, by recipe/trial/target. RecordError where the file is damaged: each array has a checksum."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, EOFError, ValueError, KeyError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error):
        raise RecordError(str(path), "was edited or damaged: it holds no outputs that can be read") from None


def compare_outputs(
    kernel: str, workload: str, device: Device, validations: list[ValidationRecord], folder: Path
) -> CrossingRecord | None:
    """Every stored target of every environment against every other, and against the truth. None without arrays."""
    outputs: dict[str, dict[str, dict[str, np.ndarray]]] = {}  # recipe -> trial -> "environment:target" -> array
    inputs: dict[str, set[str]] = {}
    for validation in validations:
        for recipe in validation.recipes:
            inputs.setdefault(recipe.recipe, set()).add("".join(recipe.input_sha256))
        if not validation.arrays or not (folder / validation.arrays).is_file():
            continue
        for name, array in load_arrays(folder / validation.arrays).items():
            recipe_name, trial, target = name.split("/")
            owner = protocol.TRUTH if target == protocol.TRUTH else f"{validation.environment}:{target}"
            outputs.setdefault(recipe_name, {}).setdefault(trial, {})[owner] = array
    pairs = [
        Crossing(
            left=left,
            right=right,
            recipe=recipe_name,
            trials=sums.trials,
            identical_trials=sums.identical,
            max_abs=sums.largest,
            mean_abs=sums.total / sums.finite if sums.finite else None,
            differing_share=sums.differing / sums.elements if sums.elements else None,
        )
        for recipe_name, by_trial in outputs.items()
        for (left, right), sums in compare_recipe(by_trial.values()).items()
    ]
    if not pairs:
        return None
    return CrossingRecord(
        kernel=kernel,
        workload=workload,
        device=device,
        inputs_identical=all(len(digests) == 1 for digests in inputs.values()),
        pairs=pairs,
    )


def uncompared(plan: Plan, run: Run) -> bool:
    """Whether there are outputs whose comparison is not recorded."""
    return any(
        not run.crossing_path(cell.kernel, cell.device, cell.workload).exists()
        and load_record(run.validation_path(cell), ValidationRecord).arrays
        for cell in plan.cells
    )


def compare_all(context: Context, display: Display) -> None:
    """From stored outputs, without running anything: of large workloads that takes a while."""
    plan, run, compared = context.plan, context.run, 0
    for kernel, device, workload in dict.fromkeys((c.kernel, c.device, c.workload) for c in plan.cells):
        path = run.crossing_path(kernel, device, workload)
        cells = [c for c in plan.cells if (c.kernel, c.device, c.workload) == (kernel, device, workload)]
        validations = [load_record(run.validation_path(c), ValidationRecord) for c in cells]
        key = keys.of("crossing", validations=[outputs_of(validation) for validation in validations])
        if path.exists() and load_record(path, CrossingRecord).key == key:
            continue
        record = compare_outputs(kernel, workload, device, validations, run.folder)
        if record is not None:
            save_record(path, record.model_copy(update={"key": key}))
            compared += len(record.pairs)
    if compared:
        display.note(f"compared {compared} pairs of outputs")


def outputs_of(validation: ValidationRecord) -> list[Any]:
    """What a comparison depends on: whose outputs, and their bits."""
    results = [(recipe.recipe, target) for recipe in validation.recipes for target in recipe.targets]
    digests = [[recipe, target.target, target.output_sha256] for recipe, target in results]
    return [validation.environment, validation.key, digests]
