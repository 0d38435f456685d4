"""Pairwise comparison: outputs of all environments against each other. Did the kernel move, or did a reference?"""

from __future__ import annotations

import itertools
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.config import keys
from harness.config.plan import Plan
from harness.errors import RecordError
from harness.progress import Display
from harness.run.context import Context
from harness.schema.records import Crossing, CrossingRecord, Device, TruthDifference, ValidationRecord
from harness.schema.run_records import WorkloadInfo
from harness.schema.storage import Run, load_record, save_record
from harness.worker import dtypes, meaning, protocol
from harness.worker.protocol import DifferenceKind

Arrays = Mapping[str, np.ndarray]
Pair = tuple[str, str]
Truths = dict[tuple[str, int, str], dict[str, np.ndarray]]  # recipe, trial, output -> environment -> float64
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
class PairSums:
    """What a pair of outputs comes to, over trials: elements whose bits differ, and differences of finite elements."""

    trials: int = 0
    identical: int = 0
    elements: int = 0
    differing: int = 0
    finite: int = 0
    total: float = 0.0
    largest: float | None = None
    greatest: float = 0.0  # finite magnitude of an element of either

    def add(self, one: np.ndarray, other: np.ndarray) -> None:
        """Add some elements of a trial."""
        left, right = as_float64(one), as_float64(other)
        with np.errstate(invalid="ignore"):  # infinities, of which none counts
            difference = np.abs(left - right)
        finite = difference[np.isfinite(difference)]
        self.elements += one.size
        self.differing += differing(one, other)
        self.finite += finite.size
        self.total += float(finite.sum())
        if finite.size:
            self.largest = max(float(finite.max()), self.largest or 0.0)
        magnitudes = (float(np.abs(each[np.isfinite(each)]).max(initial=0.0)) for each in (left, right))
        self.greatest = max(self.greatest, *magnitudes)

    def add_trial(self, one: np.ndarray, other: np.ndarray) -> None:
        """Add a trial, in blocks that stay in a processor's cache."""
        before, left, right = self.differing, np.ravel(one), np.ravel(other)
        for start in range(0, left.size, BLOCK_ELEMENTS):
            block = slice(start, start + BLOCK_ELEMENTS)
            self.add(left[block], right[block])
        self.trials += 1
        self.identical += self.differing == before and one.dtype == other.dtype


def compare_recipe(trials: Iterable[Arrays]) -> dict[Pair, PairSums]:
    """Return every pair of outputs over all trials in which both are there, in one shape."""
    sums: dict[Pair, PairSums] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # numpy lets go of the interpreter while it computes
        for outputs in trials:
            pairs = [
                pair for pair in itertools.combinations(outputs, 2) if outputs[pair[0]].shape == outputs[pair[1]].shape
            ]
            added = [
                pool.submit(sums.setdefault(pair, PairSums()).add_trial, outputs[pair[0]], outputs[pair[1]])
                for pair in pairs
            ]
            for each in added:
                each.result()
    return sums


def load_arrays(path: Path) -> Arrays:
    """Stored outputs, by recipe/trial/target. RecordError where the file is damaged: each array has a checksum."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, EOFError, ValueError, KeyError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error):
        raise RecordError(str(path), "was edited or damaged: it holds no outputs that can be read") from None


def output_of_truth(target: str) -> str | None:
    """Return the output whose float64 result is stored under this name, empty for the one that stands for all; None
    where the name is a target's."""
    if target == protocol.TRUTH:
        return ""
    return target.removeprefix(protocol.OF_OUTPUT) if target.startswith(protocol.OF_OUTPUT) else None


def compare_outputs(
    kernel: str, workload: WorkloadInfo, device: Device, validations: list[ValidationRecord], folder: Path
) -> CrossingRecord | None:
    """Compare every stored target of every environment with every other, and with the truth; of a problem, whose truth
    each environment computes, the truths too. None without arrays."""
    outputs, truths = read_outputs(validations, folder, shares_truth=workload.problem is None)
    pairs = [
        Crossing(
            left=left,
            right=right,
            recipe=recipe,
            trials=sums.trials,
            identical_trials=sums.identical,
            max_abs=sums.largest,
            mean_abs=sums.total / sums.finite if sums.finite else None,
            differing_share=sums.differing / sums.elements if sums.elements else None,
            largest=sums.greatest,
        )
        for recipe, by_trial in outputs.items()
        for (left, right), sums in compare_recipe(by_trial.values()).items()
    ]
    if not pairs:
        return None
    inputs: dict[str, set[str]] = {}
    for recipe in (recipe for validation in validations for recipe in validation.recipes):
        inputs.setdefault(recipe.recipe, set()).add("".join(recipe.input_sha256))
    return CrossingRecord(
        kernel=kernel,
        workload=workload.id,
        device=device,
        inputs_identical=all(len(digests) == 1 for digests in inputs.values()),
        pairs=pairs,
        truths=list(differing_truths(truths, resolutions(validations, workload.dtype))),
    )


def read_outputs(
    validations: Iterable[ValidationRecord], folder: Path, *, shares_truth: bool
) -> tuple[dict[str, dict[str, dict[str, np.ndarray]]], Truths]:
    """Return stored outputs by recipe, trial and owner (`environment:target`), and of problems their ground truths."""
    outputs: dict[str, dict[str, dict[str, np.ndarray]]] = {}
    truths: Truths = {}
    for validation in validations:
        if not validation.arrays or not (folder / validation.arrays).is_file():
            continue
        for name, array in load_arrays(folder / validation.arrays).items():
            recipe, trial, target = name.split("/", 2)
            output = output_of_truth(target)
            if output is not None and not shares_truth:
                truths.setdefault((recipe, int(trial), output), {})[validation.environment] = array
            if not output:  # a target's, or the truth of the output that stands for all
                is_shared = output is not None and shares_truth
                owner = protocol.TRUTH if is_shared else f"{validation.environment}:{target}"
                outputs.setdefault(recipe, {}).setdefault(trial, {})[owner] = array
    return outputs, truths


def resolutions(validations: Iterable[ValidationRecord], dtype: str) -> dict[str, float]:
    """Return, by recipe, how far apart float64 results may be (`meaning.resolution_of`)."""
    unit = dtypes.UNIT_ROUNDOFF.get(dtype)
    found: dict[str, float] = {}
    for recipe in (recipe for validation in validations for recipe in validation.recipes):
        cost = max(recipe.rounding_cost, default=0.0)
        allowed = meaning.resolution_of(cost, unit) if unit else meaning.RESOLUTION
        found[recipe.recipe] = max(allowed, found.get(recipe.recipe, 0.0))
    return found


def differing_truths(truths: Truths, allowed: Mapping[str, float]) -> Iterator[TruthDifference]:
    """Yield, for each output and each two environments, the first trial in which their float64 results differ."""
    seen = set()
    for (recipe, trial, output), arrays in sorted(truths.items()):
        for left, right in itertools.combinations(arrays, 2):
            one, other = arrays[left], arrays[right]
            found = meaning.float64_difference(one, other, allowed.get(recipe, meaning.RESOLUTION))
            if found is None or (left, right, recipe, output) in seen:
                continue
            seen.add((left, right, recipe, output))
            left_value, right_value = f"{found.left:.6g}", f"{found.right:.6g}"
            if found.kind is DifferenceKind.SHAPE:
                left_value, right_value = str(list(one.shape)), str(list(other.shape))
            yield TruthDifference(
                left=left,
                right=right,
                recipe=recipe,
                trial=trial,
                output=output,
                kind=found.kind,
                elements=found.elements,
                of=max(one.size, other.size),
                index=list(found.place),
                left_value=left_value,
                right_value=right_value,
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
        record = compare_outputs(kernel, plan.workload(workload), device, validations, run.folder)
        if record is not None:
            save_record(path, replace(record, key=key))
            compared += len(record.pairs)
    if compared:
        display.note(f"compared {compared} pairs of outputs")


def outputs_of(validation: ValidationRecord) -> list[Any]:
    """What a comparison depends on: whose outputs, and their bits."""
    results = [(recipe.recipe, target) for recipe in validation.recipes for target in recipe.targets]
    digests = [[recipe, target.target, target.output_sha256] for recipe, target in results]
    truths = [[recipe.recipe, recipe.truth_sha256] for recipe in validation.recipes]
    return [validation.environment, validation.key, digests, truths]
