"""Attention with other heads and rows of K and V than of Q, and with masks: inputs, truth, known wrong answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.worker import dtypes, fresh, inputs, wire
from harness.worker.attention import AttentionWorkload
from harness.worker.excerpt import excerpt
from harness.worker.orders import Picked

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


def naive(asked: AttentionWorkload, arrays: list[Any]) -> Any:
    """Row by row, with every key in question."""
    q, k, v = (dtypes.decode(array, asked.dtype).astype(np.float64) for array in arrays[:3])
    mask, keep = asked.given(arrays)[3:5]
    seen, bias = (None, mask) if asked.mask == "bias" else (mask, None)
    out = np.zeros(q.shape)
    for b, h, i in np.ndindex(q.shape[:3]):
        shared = h // (q.shape[1] // k.shape[1])
        keys = [j for j in range(k.shape[2]) if not (asked.causal and j > i) and (seen is None or seen[b, 0, i, j])]
        if not keys:
            continue
        logits = asked.scale * k[b, shared, keys] @ q[b, h, i]
        if bias is not None:
            logits = logits + dtypes.decode(bias, asked.dtype)[b, 0, i, keys]
        weights = np.exp(logits - logits.max())
        weights /= weights.sum()
        if keep is not None:
            weights = weights * keep[b, h, i, keys] / (1 - asked.dropout)
        out[b, h, i] = weights @ v[b, shared, keys]
    return out


@pytest.mark.parametrize("recipe", ["independent", "shared_qkv"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_truth_is_attention_with_options(options: dict[str, Any], dtype: str, recipe: str) -> None:
    asked = workload(dtype=dtype, **options)
    arrays = asked.arrays(recipe, 0, 7)
    assert [(array.shape, array.dtype) for array in arrays] == [
        (shape, dtypes.STORAGE[name]) for shape, name in asked.inputs
    ]
    exact, emulated = asked.computed(arrays)
    wanted = naive(asked, arrays)
    assert np.abs(exact - wanted).max() < 1e-12
    assert np.abs(emulated - wanted).max() < 40 * dtypes.UNIT_ROUNDOFF[dtype]
    if not asked.dropout:  # which may leave nothing of what a row sees
        assert wanted.any(axis=3).all() == (asked.mask != "empty_rows")


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_what_misreads_an_option_is_a_known_wrong_answer(options: dict[str, Any]) -> None:
    asked = workload(**options)
    arrays = asked.arrays("independent", 0, 7)
    exact = asked.computed(arrays)[0]
    wrong = {name: values for _, name, _, values, _ in asked.wrong_answers(arrays, map)}
    names = set()
    if options.get("kv_heads", 1) > 1:
        names.add("heads of K and V in another order")
    if options.get("kv_len") == 50 and not (asked.causal or asked.mask):  # which may hide the other keys anyway
        names.add("as many keys as queries")
    if asked.mask:
        names.add("without the mask")
    if asked.dropout:
        names.add("without dropout")
    told = [kind for kind, *_ in asked.wrong_answers(arrays, map)]
    assert names <= set(wrong) and told.count("misread") == len(names)
    for name, values in wrong.items():
        assert np.isfinite(values).all() and np.abs(values - exact).max() > 1e-4, name


def test_where_no_key_is_seen_every_output_is_zero_and_nothing_is_a_known_wrong_answer() -> None:
    asked = workload(seq_len=1, kv_len=50, mask="empty_rows")
    arrays = asked.arrays("independent", 0, 7)
    assert not asked.computed(arrays)[0].any() and not list(asked.wrong_answers(arrays, map))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_some_rows_of_a_timed_call_have_the_truth_that_they_have_among_all(options: dict[str, Any]) -> None:
    asked = workload(**options)
    arrays = asked.arrays("independent", 0, 7)
    exact = asked.computed(arrays)[0]
    part, pick = excerpt(asked, Picked("timed", arrays, exact, "float32"))
    assert np.abs(part.computed(pick.arrays)[0] - pick.output).max() < 1e-12


@pytest.mark.parametrize("mask", ["random", "bias"])
def test_of_fresh_inputs_booleans_stay_and_numbers_are_drawn_anew(mask: str) -> None:
    drawn = fresh.Fresh(workload(mask=mask), 3)
    drawn.draw(2)
    one, other = drawn.arrays(0), drawn.arrays(1)
    changed = [not np.array_equal(a, b) for a, b in zip(one, other, strict=True)]
    assert changed == [True, True, True, mask == "bias"]


def test_other_sizes_keep_heads_that_divide() -> None:
    asked = workload(kv_heads=2, kv_len=50, mask="random")
    for heads in (1, 2, 3, 4, 6):
        sized = asked.of_sizes((1, heads, 9, 8))
        assert heads % sized.kv_shape[1] == 0 and sized.kv_shape[2] == 50
        arrays = sized.arrays("independent", 0, 7)
        assert np.abs(sized.computed(arrays)[0] - naive(sized, arrays)).max() < 1e-12


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
