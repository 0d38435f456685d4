"""The inputs: the same bytes on every machine, Python and numpy."""

from __future__ import annotations

import numpy as np
import pytest

from harness.worker import agreement, attention, dtypes, inputs, rounding, wire
from tests.numpy_attention import exact

SHAPE = (1, 2, 17, 8)

# Computed once, on x86-64 with numpy 1.26 and 2.4. A change here makes every stored result incomparable.
GOLDEN = {
    ("independent", "float16"): "44723154e82ffda9f822d96e05e6c08dfebe8d780eddf8bab0f646d8ed2fc8f4",
    ("independent", "bfloat16"): "cd5b1a72c67830f34d0b3e79b49c98ca9b43fce190f8b9a145bc6058c0882121",
    ("independent", "float32"): "0505552b80ac1b1a0cb9df46c11000776f11081fb52d11b316133af39c22410c",
    ("shared_qkv", "float16"): "febdb524fd25fb2960ca7a6b4e33fd088ea9b60b57f3f796bbb4138a919ea372",
    ("large_logits", "bfloat16"): "fcbab08b6b9de3745c622de0daac68a025edcf75c0e7077dde393af736c20890",
}


@pytest.mark.parametrize(("recipe", "dtype"), GOLDEN)
def test_bytes_are_the_recorded_ones(recipe: str, dtype: str) -> None:
    assert inputs.digest(inputs.generate(recipe, dtype, SHAPE, 7, 3)) == GOLDEN[recipe, dtype]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_smaller_inputs_are_halved_and_ask_the_same(dtype: str) -> None:
    shape = {"id": "x", "dtype": dtype, "batch": 1, "heads": 2, "seq_len": 17, "head_dim": 8, "causal": False}
    plain = attention.AttentionWorkload(wire.WorkloadRequest(**shape, scale=0.25, recipes={}))
    small = plain.on("halved_4")
    assert plain.on("large_logits") is plain and (plain.scale, small.scale) == (0.25, 64.0)
    full, halved = (plain.arrays(recipe, 1, 7) for recipe in ("independent", "halved_4"))
    for one, other in zip(full, halved, strict=True):
        assert np.array_equal(dtypes.decode(one, dtype) / 16, dtypes.decode(other, dtype))
    one, other = (
        exact(*(dtypes.decode(array, dtype).astype(np.float64) for array in arrays), False, asked.scale)[0]
        for asked, arrays in ((plain, full), (small, halved))
    )
    ruler = rounding.Ruler(other, dtype)
    error_scale = rounding.ErrorScale(*rounding.measure([dtypes.quantise(other, dtype)], ruler), ruler)
    assert np.allclose(one / 16, other, rtol=1e-12, atol=0)
    limits = {"rounding": 4.0, "kernelbench": 1e-2, "strict": 1e-3}
    assert agreement.is_scaled(one, other, limits, error_scale)
    flat = exact(*(dtypes.decode(array, dtype).astype(np.float64) for array in halved), False, plain.scale)[0]
    assert not agreement.is_scaled(one, flat, limits, error_scale), "its weights are other ones"
    assert not agreement.is_scaled(np.zeros(3), np.zeros(3), limits, error_scale)


def test_first_deviates_from_their_definition() -> None:
    words = np.random.Philox(key=np.array([5, 0], np.uint64), counter=np.array([0, 0, 2, 1], np.uint64)).random_raw(12)
    wanted = []
    for index in range(4):
        pieces = [int(word) >> shift & 0xFFFF for word in words[index::4] for shift in (0, 16, 32, 48)]
        assert len(pieces) == 12
        wanted.append((sum(pieces) - 6 * 65535) / 65536)
    assert inputs.deviates(5, 2, 1, 4).tolist() == wanted


def test_deviates_are_close_to_normal() -> None:
    values = inputs.deviates(0, 0, 0, 1 << 18).astype(np.float64)
    assert abs(values.mean()) < 0.01
    assert abs(values.std() - 1) < 0.01
    assert abs((np.abs(values) < 1.959964).mean() - 0.95) < 0.002
    assert np.abs(values).max() < 6


def test_streams_of_seed_trial_and_tensor_differ() -> None:
    streams = {inputs.deviates(*key, 64).tobytes() for key in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))}
    assert len(streams) == 4


def test_recipes() -> None:
    q, k, v = inputs.generate("shared_qkv", "float32", SHAPE, 0, 0)
    assert (q == k).all() and (q == v).all() and not np.shares_memory(k, v)
    plain, large = (inputs.generate(recipe, "float32", SHAPE, 0, 0) for recipe in ("independent", "large_logits"))
    assert (large[0] == plain[0] * inputs.LARGE).all()
    assert (large[1] == plain[1]).all()
    assert np.isfinite(inputs.generate("large_logits", "float16", (1, 8, 512, 64), 0, 0)[0]).all()
    with pytest.raises(ValueError, match="odd"):
        inputs.generate("odd", "float32", SHAPE, 0, 0)


def test_bfloat16_rounds_to_nearest_even_once() -> None:
    cases = [
        (1.0, 0x3F80),
        (1 + 2**-8, 0x3F80),  # a tie goes to even: down
        (1 + 3 * 2**-8, 0x3F82),  # a tie goes to even: up
        (-1 - 2**-8 - 2**-20, 0xBF81),
        (float("inf"), 0x7F80),
        (float("-inf"), 0xFF80),
        (3.4e38, 0x7F80),  # beyond the largest bfloat16
        (0.0, 0),
        (-0.0, 0x8000),
    ]
    for kind in (np.float32, np.float64):
        got = dtypes.encode(np.array([value for value, _ in cases], kind), "bfloat16")
        assert got.dtype == np.uint16
        assert got.tolist() == [bits for _, bits in cases]
    # Through float32 this would be a tie, and go down.
    assert dtypes.encode(np.array([1 + 2**-8 + 2**-40]), "bfloat16").tolist() == [0x3F81]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_bfloat16_keeps_nan(kind: type) -> None:
    with np.errstate(invalid="ignore"):
        bits = np.array([0x7FFFFFFF, 0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32).astype(kind)
    assert np.isnan(dtypes.decode(dtypes.encode(bits, "bfloat16"), "bfloat16")).all()


def test_bytes_come_back() -> None:
    for dtype in dtypes.UNIT_ROUNDOFF:
        array = inputs.generate("independent", dtype, SHAPE, 0, 0)[0]
        assert (dtypes.from_bytes(array.tobytes(), dtype, SHAPE) == array).all()
        assert (dtypes.encode(dtypes.decode(array, dtype), dtype) == array).all()
        assert dtypes.size_bytes(dtype, SHAPE) == array.nbytes
