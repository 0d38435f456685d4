"""A part of an attention's timed call, chosen at random: the truth of all takes much longer than the kernel."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .dtypes import Array
    from .target import Picked

CHECKED_HEADS, CHECKED_ELEMENTS = 4, 1 << 14


def excerpt(workload: Any, pick: Picked) -> tuple[Any, Picked]:
    """Return the same of a few heads, and of a few rows of each. Gradients of K and V are sums over all rows: there it
    is one head of K and V, with all that share it."""
    batch, heads, rows, columns = workload.shape
    generator = random.SystemRandom()
    if workload.backward:
        return _one_head(workload, pick, generator.randrange(batch), generator.randrange(workload.kv_shape[1]))
    chosen = generator.sample(range(batch * heads), min(CHECKED_HEADS, batch * heads))
    count = min(rows, math.ceil(CHECKED_ELEMENTS / (len(chosen) * columns)))
    positions = np.array(sorted(generator.sample(range(rows), count)))

    def part(array: Array, places: Any = slice(None)) -> Array:
        own = [head * array.shape[1] // heads for head in chosen]  # of K and V those that the chosen ones share
        return np.ascontiguousarray(array.reshape(-1, *array.shape[2:])[own][None, :, places])

    q, k, v, *masks = pick.arrays
    arrays = [part(q, positions), part(k), part(v), *(part(mask, positions) for mask in masks)]
    return workload.part(len(chosen), positions), pick._replace(arrays=arrays, output=part(pick.output, positions))


def _one_head(workload: Any, pick: Picked, entry: int, shared: int) -> tuple[Any, Picked]:
    """Return the same of one batch entry, and there of one head of K and V."""

    def part(array: Array) -> Array:
        count = array.shape[1] // workload.kv_shape[1] or 1  # a mask has one head, and no other is meant
        first = shared * count if array.shape[1] > 1 else 0
        return np.ascontiguousarray(array[entry : entry + 1, first : first + count])

    output = np.concatenate([part(each).reshape(-1) for each in workload.split(pick.output).values()])
    sharing = workload.shape[1] // workload.kv_shape[1]
    one = workload.of_sizes((1, sharing, 0, 0))
    one.kv_heads = 1
    return one, pick._replace(arrays=list(map(part, pick.arrays)), output=output)
