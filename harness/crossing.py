"""Outputs of all environments against each other: did the kernel move, or did a reference?"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from harness.inside import protocol
from harness.records import Crossing, CrossingRecord, Device, ValidationRecord, WorkloadInfo

Arrays = Mapping[str, np.ndarray]
BLOCK_ELEMENTS = 1 << 16


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


def cross_pair(left: list[np.ndarray], right: list[np.ndarray]) -> tuple[int, float | None, float | None, float | None]:
    """(trials with identical bits, largest and mean absolute difference over finite elements, share of elements that
    differ).

    Differences are None where no element is finite on both sides, the share where there is no element.
    """
    identical, largest, total, count, other, elements = 0, None, 0.0, 0, 0, 0
    for a, b in zip(left, right, strict=True):
        before = other
        for one, two in zip(blocks(a), blocks(b), strict=True):
            other += differing(one, two)
            difference = np.abs(as_float64(one) - as_float64(two))
            finite = difference[np.isfinite(difference)]
            if finite.size:
                top = float(finite.max())
                largest = top if largest is None else max(largest, top)
                total += float(finite.sum())
                count += finite.size
        identical += a.dtype == b.dtype and other == before
        elements += a.size
    return identical, largest, total / count if count else None, other / elements if elements else None


def blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    """The elements in pieces that stay in a processor's cache while they are compared."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return (flat[start : start + BLOCK_ELEMENTS] for start in range(0, flat.size, BLOCK_ELEMENTS))


def cross(
    kernel: str, workload: WorkloadInfo, device: Device, validations: list[ValidationRecord], folder: Path
) -> CrossingRecord | None:
    """Every stored target of every environment against every other, and against the truth. None without arrays."""
    outputs: dict[str, dict[str, dict[str, np.ndarray]]] = {}  # recipe -> "environment:target" -> trial -> array
    inputs: dict[str, set[str]] = {}
    for validation in validations:
        for recipe in validation.recipes:
            inputs.setdefault(recipe.recipe, set()).add("".join(recipe.input_sha256))
        if not validation.arrays or not (folder / validation.arrays).is_file():
            continue
        with np.load(folder / validation.arrays, allow_pickle=False) as arrays:
            for name in arrays.files:
                recipe_name, trial, target = name.split("/")
                owner = protocol.TRUTH if target == protocol.TRUTH else f"{validation.environment}:{target}"
                outputs.setdefault(recipe_name, {}).setdefault(owner, {})[trial] = arrays[name]

    def compare(recipe_name: str, left: str, right: str) -> Crossing | None:
        one, two = outputs[recipe_name][left], outputs[recipe_name][right]
        same = [trial for trial in sorted(one.keys() & two.keys()) if one[trial].shape == two[trial].shape]
        if not same:
            return None
        identical, largest, mean, share = cross_pair([one[trial] for trial in same], [two[trial] for trial in same])
        return Crossing(
            left=left,
            right=right,
            recipe=recipe_name,
            trials=len(same),
            identical_trials=identical,
            max_abs=largest,
            mean_abs=mean,
            differing_share=share,
        )

    wanted = [
        (recipe_name, left, right)
        for recipe_name, by_owner in outputs.items()
        for left, right in itertools.combinations(by_owner, 2)
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # numpy lets go of the interpreter while it computes
        pairs = [pair for pair in pool.map(lambda names: compare(*names), wanted) if pair is not None]
    if not pairs:
        return None
    return CrossingRecord(
        kernel=kernel,
        workload=workload.id,
        device=device,
        inputs_identical=all(len(digests) == 1 for digests in inputs.values()),
        pairs=pairs,
    )
