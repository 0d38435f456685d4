from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pytest

from harness.worker import dtypes, fresh, wire
from harness.worker.attention import AttentionWorkload
from harness.worker.fresh import Fresh, Slots


def made(dtype: str = "float32", seq_len: int = 16) -> Fresh:
    request = wire.WorkloadRequest(
        id="w",
        dtype=dtype,
        recipes={"independent": 1},
        batch=1,
        heads=2,
        seq_len=seq_len,
        head_dim=16,
        causal=False,
        scale=0.25,
    )
    return Fresh(AttentionWorkload(request), 0)


def shown(source: Fresh, count: int = 3, first: int = 0) -> tuple[list[Any], Slots]:
    slots = Slots(source.base, 64, count + first)
    areas = slots.areas(mmap.mmap(-1, slots.size_bytes))
    source.draw(count)
    source.show(areas, first, count)
    return areas, slots


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_call_has_elements_of_its_own_near_the_magnitude_of_the_first(dtype: str) -> None:
    source = made(dtype)
    areas, _ = shown(source)
    for area, base in zip(areas, source.base, strict=True):
        values, wanted = dtypes.decode(area, dtype), dtypes.decode(base.reshape(-1), dtype)
        assert (values[0] != values[1]).mean() > 0.9 and (values[1] != values[2]).mean() > 0.9
        normal = np.abs(wanted) >= 2.0**-14  # below it a float16 has no leading one, and its magnitude is drawn, too
        ratio = np.abs(values[:, normal] / wanted[normal])
        assert ratio.min() > 0.49 and ratio.max() < 2.01
        assert (values < 0).mean() == pytest.approx(0.5, abs=0.1)


def test_zeros_stay_zeros() -> None:
    source = made()
    source.base[0][...] = 0
    source.masks[0] = source._mask(0)
    areas, _ = shown(source)
    assert not areas[0].any() and areas[1].all()


def test_what_was_shown_is_known_for_each_call() -> None:
    source = made(seq_len=256)  # large enough for late elements
    assert sum(array.nbytes for array in source.base) >= fresh.LATE_BYTES
    areas, _ = shown(source, count=2, first=1)
    for call in range(2):
        for array, area in zip(source.arrays(call), areas, strict=True):
            assert (array.reshape(-1) == area[1 + call]).all()


def test_late_elements_are_not_those_that_were_shown_first() -> None:
    source = made(seq_len=256)
    slots = Slots(source.base, 0, 1)
    areas = slots.areas(mmap.mmap(-1, slots.size_bytes))
    source.draw(1)
    early = [array.reshape(-1).copy() for array in source.arrays(0)]
    source.show(areas, 0, 1)
    changed = [int((area[0] != before).sum()) for area, before in zip(areas, early, strict=True)]
    assert all(1 <= count <= fresh.LATE_ELEMENTS for count in changed)


def test_nobody_else_knows_the_base() -> None:
    one, other = made(), made()
    assert (one.base[0] != other.base[0]).mean() > 0.9


def test_slots_do_not_overlap() -> None:
    source = made()
    slots = Slots(source.base, 100, 4)
    assert slots.slot_bytes % fresh.ALIGNMENT == 0 and slots.output_offset >= sum(array.nbytes for array in source.base)
    memory = mmap.mmap(-1, slots.size_bytes)
    for number, area in enumerate(slots.areas(memory)):
        area[...] = number + 1
    for slot in range(4):
        np.ndarray([25], np.float32, memory, slots.output_at(slot))[...] = -1
    assert [set(area.reshape(-1)) for area in slots.areas(memory)] == [{1.0}, {2.0}, {3.0}]
