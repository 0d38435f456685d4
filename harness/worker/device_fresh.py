"""`fresh` on a GPU: a base of the same kind, whose bits are drawn there for each call, in memory of PyTorch's own."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Sequence

import numpy as np
import torch

from . import tensors
from .fresh import Fresh, Slots

if TYPE_CHECKING:
    from .dtypes import Array
    from .inputs import Each
    from .subjects import Workload

LEAST = torch.iinfo(torch.int64).min


class DeviceSlots(Slots):
    """The same in a tensor of bytes."""

    def areas(self, memory: Any) -> list[Any]:
        return [self._words(memory, like.itemsize, offset, like.size) for like, offset in zip(self.likes, self.offsets)]

    def _words(self, memory: Any, item_bytes: int, offset: int, size: int) -> Any:
        words = memory.view(tensors.BITS[item_bytes])
        return words.as_strided((self.count, size), (self.slot_bytes // item_bytes, 1), offset // item_bytes)


class DeviceFresh(Fresh):
    """Of one workload. Rows are tensors of integers, as wide as their elements."""

    def __init__(self, workload: Workload, seed: int, each: Each = map) -> None:
        super().__init__(workload, seed, each)
        self.generator = torch.Generator("cuda")
        self.generator.manual_seed(secrets.randbits(63))
        self.words = [_words(array) for array in self.base]
        self.on_device = [None if mask is None else _words(mask) for mask in self.masks]

    def draw(self, count: int) -> None:
        self.drawn = []  # before there are others
        if self.is_continuous:
            self.drawn = [[self._row(index, count)] for index in range(len(self.words))]
        else:
            self.drawn = [[_words(array) for array in self._whole()] for _ in range(count)]

    def _row(self, index: int, count: int) -> Any:
        base, mask = self.words[index], self.on_device[index]
        if mask is None:
            return base
        rows = self._bits(count * base.numel(), base.dtype).view(count, base.numel())
        return rows.bitwise_and_(mask).bitwise_xor_(base)

    def _bits(self, count: int, words: Any) -> Any:
        size_bytes = count * torch.iinfo(words).bits // 8
        raw = torch.empty(-(-size_bytes // 8), dtype=torch.int64, device="cuda")
        return raw.random_(LEAST, None, generator=self.generator).view(words)[:count]

    def put(self, areas: Sequence[Any], slot: int, arrays: Sequence[Array]) -> None:
        for area, array in zip(areas, arrays):
            area[slot] = _words(array)
        torch.cuda.synchronize()

    def show(self, areas: Sequence[Any], first: int, count: int) -> None:
        super().show(areas, first, count)
        torch.cuda.synchronize()

    def _show_late(self, areas: Sequence[Any], first: int, count: int) -> None:
        for index, area in enumerate(areas):
            mask = self.on_device[index]
            if mask is None:
                continue
            places = torch.tensor(self._late_places(area.shape[1]), dtype=torch.int64, device="cuda")
            anew = (self._bits(len(places), mask.dtype) & mask[places]) ^ self.words[index][places]
            self.drawn[index][0][:, places] = anew
            area[first : first + count, places] = anew

    def arrays(self, call: int) -> list[Array]:
        rows = [row.cpu().numpy().view(like.dtype) for row, like in zip(self._rows(call), self.base)]
        return self._as_arrays(rows)


def _words(array: Any) -> Any:
    """Return a flat tensor of an array's bits."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return torch.from_numpy(flat.view("u1" if flat.itemsize == 1 else f"i{flat.itemsize}")).cuda()
