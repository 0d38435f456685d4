"""Attention with other heads and rows of K and V than of Q, masks and gradients: its inputs, and parts of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from harness.worker import dtypes, fresh, inputs, wire
from harness.worker.attention import AttentionWorkload
from harness.worker.excerpt import excerpt
from harness.worker.target import Picked

ASKED: dict[str, Any] = {
    "id": "x",
    "dtype": "float32",
    "batch": 2,
    "heads": 6,
    "seq_len": 33,
    "head_dim": 16,
    "scale": 0.25,
    "causal": False,
    "recipes": {"independent": 1},
}
OPTIONS: list[dict[str, Any]] = [
    {"kv_len": 50},
    {"kv_len": 20, "causal": True},
    {"kv_len": 50, "causal": True},
    {"kv_heads": 2},
    {"mask": "padding", "kv_len": 50},
    {"mask": "random"},
    {"mask": "empty_rows", "kv_heads": 3, "kv_len": 20},
    {"mask": "bias", "kv_heads": 1},
    {"dropout": 0.25, "kv_heads": 2, "kv_len": 50},
    {"dropout": 0.5, "mask": "empty_rows"},
    {"dropout": 0.1, "causal": True},
]
# Made once with numpy 2.4. A change here makes stored results incomparable.
GOLDEN = {
    "padding": "fd279e1d005aded9bb780f00e37c2fb884e0059c6fceaedc8d94ffe60e3a7ccd",
    "random": "987a31e4d2ef185e7e74d211b2106f0cd54ae18c48ebdf7e83ca167fa76415fb",
    "empty_rows": "6270d5888d2c60cc0232d99f39e6c7241eaffec8efc4224c8c62c2cd0bc7e860",
    "bias": "e1bc7bbba4cdf38f43b0b8a696345436c09691a43e24e0e3823968c03a31db5b",
}


def workload(**options: Any) -> AttentionWorkload:
    return AttentionWorkload(wire.WorkloadRequest(**{**ASKED, **options}))


@pytest.mark.parametrize("mask", ["random", "bias"])
def test_of_fresh_inputs_booleans_stay_and_numbers_are_drawn_anew(mask: str) -> None:
    drawn = fresh.Fresh(workload(mask=mask), 3)
    drawn.draw(2)
    one, other = drawn.arrays(0), drawn.arrays(1)
    changed = [not np.array_equal(a, b) for a, b in zip(one, other, strict=True)]
    assert changed == [True, True, True, mask == "bias"]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_inputs_are_as_they_are_described(options: dict[str, Any]) -> None:
    for asked in (workload(**options), workload(**options).of_sizes((1, 4, 9, 8))):
        arrays = asked.arrays("shared_qkv", 0, 7)
        assert [(each.shape, each.dtype) for each in arrays] == [
            (shape, dtypes.STORAGE[name]) for shape, name in asked.inputs
        ]


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_part_of_a_timed_call_has_the_inputs_of_a_workload_of_its_own(
    options: dict[str, Any], backward: bool
) -> None:
    asked = workload(**options, backward=backward)
    arrays = asked.arrays("independent", 0, 7)
    shape, dtype = asked.expected_output()
    part, pick = excerpt(asked, Picked("timed", arrays, np.zeros(shape, np.float32), dtype))
    assert part.fits(pick.output.shape, dtype) and pick.output.size < math.prod(shape)
    if backward:  # else a mask is repeated for each head that was chosen
        assert [array.shape for array in pick.arrays] == [shape for shape, _ in part.inputs]


def test_other_sizes_keep_heads_that_divide() -> None:
    asked = workload(kv_heads=2, kv_len=50, mask="random")
    for heads in (1, 2, 3, 4, 6):
        sized = asked.of_sizes((1, heads, 9, 8))
        assert heads % sized.kv_shape[1] == 0 and sized.kv_shape[2] == 50


def test_directions_are_the_recorded_bytes() -> None:
    found = inputs.direction("float16", (2, 3, 17, 9), 7, 3)
    assert inputs.digest([found]) == "5ae184200394d541187af0a10c5cd2239ad8bbc6eb3b0d0fa6e5052f63d39f19"


@pytest.mark.parametrize("recipe", GOLDEN)
def test_masks_are_the_recorded_bytes(recipe: str) -> None:
    assert inputs.digest([inputs.mask(recipe, "float16", (3, 1, 17, 9), 7, 3)]) == GOLDEN[recipe]


def test_draws_are_the_recorded_bytes_and_as_many_as_asked_for() -> None:
    found = inputs.keep(0.25, (2, 3, 17, 900), 7, 3)
    assert inputs.digest([found]) == "a23ede743a138a5a4111f60d09fa68ec658d4bfe494c141bd6c91e2a2c1f7655"
    assert abs(found.mean() - 0.75) < 0.01


def test_a_mask_hides_some_and_leaves_a_key_to_each_row_that_it_says() -> None:
    shape = (3, 1, 17, 9)
    for recipe in ("padding", "random", "empty_rows"):
        seen = inputs.mask(recipe, "float16", shape, 7, 3)
        rows = seen.any(axis=3)
        empty = np.arange(17) % 8 == 0 if recipe == "empty_rows" else np.zeros(17, bool)
        assert (rows == ~empty).all() and not seen.all()
    lengths = {tuple(row.sum(axis=1)) for row in inputs.mask("padding", "float16", shape, 7, 3)[:, 0]}
    assert len(lengths) > 1, "of each sequence its own"
