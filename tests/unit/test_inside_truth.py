"""Truth, its cache, and the yardstick made from it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.inside import dtypes, inputs, rounding, truth

SHAPE = (1, 2, 67, 16)
SCALE = 0.25
DTYPES = ("float16", "bfloat16", "float32")


def naive(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> np.ndarray:
    out = np.empty(q.shape)
    for b, h, i in np.ndindex(q.shape[:3]):
        last = i + 1 if causal else k.shape[2]
        logits = np.array([SCALE * float(np.dot(q[b, h, i], k[b, h, j])) for j in range(last)])
        weights = np.exp(logits - logits.max())
        out[b, h, i] = weights @ v[b, h, :last] / weights.sum()
    return out


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block", [1 << 19, 300])
def test_truth_is_attention(dtype: str, causal: bool, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truth, "BLOCK_ELEMENTS", block)
    arrays = inputs.generate("large_logits", dtype, SHAPE, 0, 0)
    got, cost = truth.attention(*arrays, causal, SCALE, dtype)
    wanted = naive(*(dtypes.decode(array, dtype).astype(np.float64) for array in arrays), causal)
    assert np.abs(got - wanted).max() < 1e-13
    assert cost >= dtypes.UNIT_ROUNDOFF[dtype]


def test_cost_does_not_depend_on_the_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    for dtype in DTYPES:
        arrays = inputs.generate("independent", dtype, SHAPE, 0, 0)
        costs = []
        for block in (1 << 19, 500):
            monkeypatch.setattr(truth, "BLOCK_ELEMENTS", block)
            costs.append(truth.attention(*arrays, True, SCALE, dtype)[1])
        assert costs[0] == pytest.approx(costs[1], rel=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("recipe", ["independent", "shared_qkv", "large_logits"])
def test_the_rounded_truth_costs_at_most_about_a_unit(dtype: str, recipe: str) -> None:
    arrays = inputs.generate(recipe, dtype, SHAPE, 0, 0)
    exact, cost = truth.attention(*arrays, False, SCALE, dtype)
    difference = np.abs(dtypes.quantise(exact, dtype) - exact)
    assert 0 < rounding.error(difference, rounding.row_scales(exact)) / cost <= 1.001


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_wrong_scale_and_a_dropped_key_stand_far_above_the_limit(dtype: str) -> None:
    q, k, v = inputs.generate("independent", dtype, SHAPE, 0, 0)
    exact, cost = truth.attention(q, k, v, False, SCALE, dtype)
    scales = rounding.row_scales(exact)
    for wrong in (
        truth.attention(q, k, v, False, SCALE * 1.05, dtype)[0],
        truth.attention(q, k[:, :, :-1], v[:, :, :-1], False, SCALE, dtype)[0],
    ):
        assert rounding.error(np.abs(wrong - exact), scales) / cost > 8


def test_a_float32_accumulator_is_part_of_the_float32_unit() -> None:
    arrays = inputs.generate("independent", "float32", (1, 1, 256, 64), 0, 0)
    exact, cost = truth.attention(*arrays, False, SCALE, "float32")
    assert 4 * 2.0**-24 < cost < 1e-4
    q, k, v = (array[0, 0] for array in arrays)
    logits = (q @ k.T) * np.float32(SCALE)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    plain = (weights @ v) / weights.sum(axis=1, keepdims=True)
    assert rounding.error(np.abs(plain - exact[0, 0]), rounding.row_scales(exact[0, 0])) / cost < 4


def test_rows_near_zero_do_not_blow_up() -> None:
    exact = np.array([[1.0, -2.0], [0.0, 1e-300]])
    assert rounding.row_scales(exact).tolist() == [2.0, 2 * rounding.FLOOR]
    assert rounding.row_scales(np.zeros((2, 2))).tolist() == [1.0, 1.0]
    assert np.isnan(rounding.error(np.array([[np.nan, 0.0]]), np.ones(1)))


class Counter:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> tuple[np.ndarray, float]:
        self.calls += 1
        return np.arange(6.0).reshape(2, 3), 2.0**-11


def test_cache_computes_once_per_input_and_problem(tmp_path: Path) -> None:
    cache, compute = truth.Cache(str(tmp_path)), Counter()
    first = cache.get("aa", ["p"], (2, 3), compute)
    again = truth.Cache(str(tmp_path)).get("aa", ["p"], (2, 3), compute)
    assert compute.calls == 1
    assert (first[0] == again[0]).all() and first[1:] == again[1:] and again[2] == 2.0**-11
    cache.get("ab", ["p"], (2, 3), compute)
    cache.get("aa", ["other"], (2, 3), compute)
    assert compute.calls == 3
    modes = {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*.truth")}
    assert modes == {0o644}, "in a container another user takes them out"


@pytest.mark.parametrize("damage", [b"", b"junk", None])
def test_a_damaged_cache_file_is_computed_again(tmp_path: Path, damage: bytes | None) -> None:
    cache, compute = truth.Cache(str(tmp_path)), Counter()
    cache.get("aa", ["p"], (2, 3), compute)
    path = Path(cache.path("aa", ["p"]))
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"\x01" if damage is None else damage)
    assert cache.get("aa", ["p"], (2, 3), compute)[0][1, 2] == 5.0
    assert compute.calls == 2
    assert path.read_bytes() == data
