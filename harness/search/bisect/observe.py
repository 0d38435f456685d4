"""Read from a run's records what was seen of one version: rates and times of the cells that are looked at."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from harness.run.pairwise import load_arrays, output_of_truth
from harness.schema.bisection_records import Aspect, CellSeen, PassCount, Question, TruthSketch
from harness.schema.records import RecipeResult, TargetResult, ValidationRecord
from harness.schema.run_records import Cell, KernelInfo
from harness.schema.storage import Run
from harness.search.bisect.steps import ERROR_RATE
from harness.search.times import Place, Rounds, compare_rounds, read_medians
from harness.stats.medians import COLD
from harness.worker import protocol

SEED = 20241128  # of the directions


def name_cells(cells: Iterable[Cell], kernels: Sequence[KernelInfo], environment: str, target: str) -> dict[str, Cell]:
    """Return every cell of one environment that is looked at, by name. A reference is looked at once a workload,
    beside the first kernel that has it."""
    by_name = {kernel.name: kernel for kernel in kernels}
    found: dict[str, Cell] = {}
    for cell in cells:
        if cell.environment != environment:
            continue
        name = f"{cell.workload}/{cell.device}"
        if target == protocol.KERNEL:
            found[f"{cell.kernel}/{name}"] = cell
        elif target in by_name[cell.kernel].references_on(cell.device):
            found.setdefault(name, cell)
    return found


def observe(run: Run, environment: str, question: Question) -> list[CellSeen]:
    """Return what the run shows of every cell of an environment; times against those of its baseline."""
    record = run.load()
    cells = name_cells(record.cells, record.kernels, environment, question.target)
    if question.what is Aspect.LATENCY:
        times = read_medians(run.launches(), question.target)
        effect = record.thresholds.min_effect
        return [
            time_cell(name, times, cell, record.baseline, 1 - ERROR_RATE / len(cells), effect(cell.device))
            for name, cell in cells.items()
        ]
    validations = {(v.environment, v.kernel, v.workload, v.device): v for v in run.validations()}
    found = []
    for name, cell in cells.items():
        validation = validations.get((environment, cell.kernel, cell.workload, cell.device))
        seen = rate_cell(name, validation, question.target)
        if validation is not None and validation.arrays and seen.rates and cell.workload in record.problems:
            arrays = load_arrays(run.folder / validation.arrays)
            is_truth = {name: output_of_truth(name.split("/", 2)[2]) is not None for name in arrays}
            seen = replace(seen, truths={name: sketch(array) for name, array in arrays.items() if is_truth[name]})
        found.append(seen)
    return found


def time_cell(
    name: str, times: Mapping[Place, Rounds], cell: Cell, baseline: str, confidence: float, min_effect: float
) -> CellSeen:
    """Return a version's time over the good one's in the same rounds. The good one is its own measure: exactly 1."""
    place = Place(cell.environment, cell.kernel, cell.workload, cell.device, COLD)
    this, good = (times.get(each, {}) for each in (place, place._replace(environment=baseline)))
    estimate = compare_rounds(good, this, confidence)
    if estimate is None:
        why = "no round has a time of this version and of the good one"
        return CellSeen(cell=name, status=protocol.NOT_RUN, message=why)
    is_good = cell.environment == baseline
    return CellSeen(
        cell=name,
        status=protocol.OK,
        ratio=estimate.ratio,
        low=1.0 if is_good else estimate.low,
        high=1.0 if is_good else estimate.high,
        median_us=median(this.values()),
        replicates=estimate.blocks,
        min_effect=min_effect,
    )


def rate_cell(name: str, record: ValidationRecord | None, target: str) -> CellSeen:
    """Return the pass rates by the deciding rule, or why there are none."""
    if record is None:
        return CellSeen(cell=name, status=protocol.NOT_RUN, message="the run holds no validation of it")
    results = [(recipe, result) for recipe in record.recipes for result in recipe.targets if result.target == target]
    ended = [record] if target == protocol.KERNEL else []
    for outcome in (*ended, *(result for _, result in results)):
        if outcome.status not in protocol.RAN:
            return CellSeen(cell=name, status=outcome.status, message=outcome.message)
    rates = {recipe.recipe: rate for recipe, result in results if (rate := count_passed(record, recipe, result))}
    if not rates:
        return CellSeen(cell=name, status=protocol.NOT_RUN, message=record.message or "its outputs were not judged")
    is_right = all(rate.passed == rate.trials for rate in rates.values())
    return CellSeen(cell=name, status=protocol.OK if is_right else protocol.WRONG, rates=rates)


def count_passed(record: ValidationRecord, recipe: RecipeResult, result: TargetResult) -> PassCount | None:
    """Count trials without a fault, against ground truth where there is one; different bits when run again are a fault
    where the same were asked for. Which trials have it is not recorded: at least so many failed."""
    truth = [agreement for agreement in result.against if agreement.against == protocol.TRUTH]
    judged = next(iter(truth or result.against), None)
    if judged is None:
        return None
    passed = judged.passed.get(record.decides, judged.passed.get("kernelbench", 0))
    other_bits = result.repeats_differ if record.deterministic and result.target == protocol.KERNEL else 0
    faults = max(other_bits, result.inputs_mutated, result.unwritten_trials)
    return PassCount(passed=max(0, min(passed, recipe.trials - faults)), trials=recipe.trials)


def sketch(array: np.ndarray) -> TruthSketch:
    """Sketch a float64 result: its shape, where it has NaN and infinities, and the projection of its finite values on
    a random direction, over the square root of their number.

    Results are large and lie in the runs. Of two that are equal to within rounding a projection is equal, too; of two
    that differ in as little as one element it is not.
    """
    is_finite = np.isfinite(array)
    values = np.where(is_finite, array, 0.0).reshape(-1)
    kinds = np.nan_to_num(np.where(is_finite, 0.0, array), nan=2.0, posinf=1.0, neginf=-1.0)
    direction = np.random.Generator(np.random.PCG64(SEED)).standard_normal(values.size)
    return TruthSketch(
        shape=list(array.shape),
        nonfinite_sha256=hashlib.sha256(kinds.tobytes()).hexdigest(),
        projection=float(values @ direction) / max(1, values.size) ** 0.5,
        largest=float(np.abs(values).max(initial=0.0)),
    )
