"""Inputs that no call had before: made by the process that measures, for each call that is timed.

A base is drawn from the workload's own generator, under a trial number that nobody else knows. For every call the
significands of its continuous elements are drawn anew (and their signs, where the distribution has both). Each keeps
its magnitude to within a factor of two, and what was computed for other calls is worth nothing. Zeros stay zeros.
Inputs of which no element is continuous are drawn whole for every call.

`draw` makes them in private memory. `show` writes them into the memory of the process that computes, at the speed of a
copy, and at last a few elements anew at places that are drawn then: who reads ahead has read some that do not count.
"""

from __future__ import annotations

import random
import secrets
from typing import TYPE_CHECKING, Any, Sequence

import numpy as np

from . import dtypes

if TYPE_CHECKING:
    from .dtypes import Array
    from .inputs import Each
    from .subjects import Workload

RECIPE = "independent"
ALIGNMENT = 256  # bytes: as memory is that CUDA gives
FIRST_SECRET = 1 << 32  # trial numbers from here on are nobody's
LATE_ELEMENTS, LATE_BYTES = 16, 1 << 16  # written once more at last, in each tensor, of slots of at least so many bytes
# Storage to (the words that its elements are looked at as, their significand's bits, the sign's).
BITS = {
    "float16": (np.uint16, 0x03FF, 0x8000),
    "bfloat16": (np.uint16, 0x007F, 0x8000),
    "float32": (np.uint32, 0x007FFFFF, 0x80000000),
    "float64": (np.uint64, (1 << 52) - 1, 1 << 63),
}


class Slots:
    """Where the tensors of each slot lie in memory: [slot][tensor], and room for an output of `output_bytes`."""

    def __init__(self, arrays: Sequence[Array], output_bytes: int, count: int) -> None:
        self.count = count
        self.offsets: list[int] = []
        end = 0
        for array in arrays:
            self.offsets.append(end)
            end += _aligned(array.nbytes)
        self.output_offset = end
        self.slot_bytes = max(ALIGNMENT, end + _aligned(output_bytes))
        self.size_bytes = self.slot_bytes * count
        self.likes = list(arrays)

    def areas(self, memory: Any) -> list[Array]:
        """Return [slot, element] of each tensor, as its storage."""
        return [
            np.ndarray((self.count, array.size), array.dtype, memory, offset, (self.slot_bytes, array.itemsize))
            for array, offset in zip(self.likes, self.offsets)
        ]

    def output_at(self, slot: int) -> int:
        """Return where a slot's output begins."""
        return slot * self.slot_bytes + self.output_offset


class Fresh:
    """Of one workload. Arrays are in their dtype's storage."""

    def __init__(self, workload: Workload, seed: int, each: Each = map) -> None:
        self.workload: Any = workload  # of either kind
        self.seed, self.each = seed, each
        self.base = self._whole()
        self.bits = np.random.SFC64(secrets.randbits(128))
        self.places = random.SystemRandom()
        self.masks = [self._mask(index) for index in range(len(self.base))]
        self.is_continuous = any(mask is not None for mask in self.masks)
        self.drawn: list[list[Array]] = []  # of each tensor, one row a call; of inputs drawn whole, one list a call

    def _whole(self) -> Any:
        trial = FIRST_SECRET + secrets.randbits(31)
        return self.workload.arrays(RECIPE, trial, self.seed, self.each)

    def _mask(self, index: int) -> Any:
        """Return the bits of a tensor's elements that are drawn; None where they are not continuous."""
        array, attention = self.base[index], self.workload.problem is None
        if attention:
            dtype = self.workload.inputs[index][1]
            if dtype not in BITS:
                return None
        else:
            if not self.base.continuous[index]:
                return None
            dtype = "bfloat16" if array.dtype == np.uint16 else str(array.dtype)
        words, significand, sign = BITS[dtype]
        if not np.isfinite(dtypes.decode(array, dtype)).all():
            return None
        flat = array.reshape(-1).view(words)
        mask = np.full(flat.shape, significand | (sign if attention else 0), words)
        mask[(flat & words(~sign & (1 << 8 * array.itemsize) - 1)) == 0] = 0
        return mask

    def draw(self, count: int) -> None:
        """Draw the inputs of the next so many calls."""
        if not self.is_continuous:
            self.drawn = [[array.reshape(-1) for array in self._whole()] for _ in range(count)]
            return
        self.drawn = [[self._row(index, count)] for index in range(len(self.base))]

    def _row(self, index: int, count: int) -> Any:
        base, mask = self.base[index].reshape(-1), self.masks[index]
        if mask is None:
            return base
        words = base.view(mask.dtype)
        size = count * words.size
        raw = self.bits.random_raw(-(-size * words.itemsize // 8)).view(mask.dtype)[:size].reshape(count, words.size)
        raw &= mask
        raw ^= words
        return raw.view(base.dtype)

    def put(self, areas: Sequence[Array], slot: int, arrays: Sequence[Array]) -> None:
        """Write known inputs into a slot."""
        for area, array in zip(areas, arrays):
            area[slot] = array.reshape(-1)

    def show(self, areas: Sequence[Array], first: int, count: int) -> None:
        """Write what was drawn into slots from `first` on."""
        for index, area in enumerate(areas):
            if self.is_continuous:
                area[first : first + count] = self.drawn[index][0]
            else:
                for call in range(count):
                    area[first + call] = self.drawn[call][index]
        if self.is_continuous and sum(array.nbytes for array in self.base) >= LATE_BYTES:
            self._show_late(areas, first, count)

    def _show_late(self, areas: Sequence[Array], first: int, count: int) -> None:
        for index, area in enumerate(areas):
            mask = self.masks[index]
            if mask is None:
                continue
            places = np.array(self._late_places(area.shape[1]), np.intp)
            words = self.base[index].reshape(-1).view(mask.dtype)[places]
            raw = self.bits.random_raw(len(places)).astype(mask.dtype)
            anew = ((raw & mask[places]) ^ words).view(area.dtype)
            self.drawn[index][0][:, places] = anew
            area[first : first + count, places] = anew

    def _late_places(self, size: int) -> list[int]:
        return self.places.sample(range(size), min(LATE_ELEMENTS, size))

    def _rows(self, call: int) -> list[Any]:
        if not self.is_continuous:
            return self.drawn[call]
        return [drawn[0] if mask is None else drawn[0][call] for drawn, mask in zip(self.drawn, self.masks)]

    def arrays(self, call: int) -> list[Array]:
        """Return a copy of one call's inputs, of those that were drawn last."""
        return self._as_arrays([np.array(row) for row in self._rows(call)])

    def _as_arrays(self, rows: list[Array]) -> list[Array]:
        shaped = [row.reshape(like.shape) for row, like in zip(rows, self.base)]
        if self.workload.problem is None:
            return shaped
        from . import problem_files

        return problem_files.with_arrays(self.base, shaped)


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT
