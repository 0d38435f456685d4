"""How the elements of a tensor lie in memory: strides in elements, a stride for each dimension, as PyTorch has them.

Standard library alone: matrix.yaml is checked by it, too.
"""

from __future__ import annotations

import contextlib
from typing import Sequence

CHANNELS_LAST, TRANSPOSED, OFFSET, SUM = "channels_last", "transposed", "offset", "sum"
NAMES = (CHANNELS_LAST, TRANSPOSED, OFFSET)  # of a tensor's; OFFSET is contiguous, and begins one element later
DIRECTIONS = (SUM, CHANNELS_LAST, TRANSPOSED)  # of a gradient's; SUM is one element everywhere


def strides(layout: str, shape: Sequence[int]) -> list[int]:
    """ValueError where the layout does not fit the shape."""
    dimensions = len(shape)
    order = list(range(dimensions))  # from the outermost in memory to the innermost
    if layout == SUM:
        return [0] * dimensions
    if layout == CHANNELS_LAST:
        if dimensions not in (4, 5):
            raise ValueError(f"{CHANNELS_LAST} has 4 or 5 dimensions, and the shape {list(shape)} has {dimensions}")
        order = [0, *order[2:], 1]
    elif layout == TRANSPOSED:
        if dimensions < 2:
            raise ValueError(f"{TRANSPOSED} swaps the last two dimensions, and the shape {list(shape)} has no two")
        order[-2:] = reversed(order[-2:])
    found, step = [0] * dimensions, 1
    for dimension in reversed(order):
        found[dimension] = step
        step *= max(1, shape[dimension])
    return found


def elements(shape: Sequence[int], steps: Sequence[int], offset: int = 0) -> int:
    """Return how many elements of memory it takes, with those between its own, and before."""
    return offset + 1 + sum((size - 1) * step for size, step in zip(shape, steps)) if all(shape) else offset


def named(shape: Sequence[int], steps: Sequence[int], offset: int = 0) -> str:
    """In words."""
    for name in NAMES:
        with contextlib.suppress(ValueError):
            if (list(steps), offset) == (strides(name, shape), int(name == OFFSET)):
                return name
    return "strides ({})".format(", ".join(map(str, steps)))
