"""Truth, its cache, and the error scale made from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.schema.storage import Run
from harness.worker import dtypes, faulty, inputs, rounding, truth
from tests.unit.committed import committed

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
    got, emulated = truth.attention(*arrays, causal, SCALE, dtype)
    wanted = naive(*(dtypes.decode(array, dtype).astype(np.float64) for array in arrays), causal)
    assert np.abs(got - wanted).max() < 1e-13
    assert (dtypes.quantise(emulated, dtype) == emulated).all()


@pytest.mark.parametrize("causal", [False, True])
def test_some_rows_have_the_truth_that_they_have_among_all(causal: bool) -> None:
    q, k, v = inputs.generate("independent", "float32", SHAPE, 0, 0)
    positions = np.array([0, 3, SHAPE[2] - 1])
    whole = truth.attention(q, k, v, causal, 0.5, "float32")
    part = truth.attention(q[:, :, positions], k, v, causal, 0.5, "float32", positions=positions)
    for one, all_rows in zip(part, whole, strict=True):
        assert np.abs(one - all_rows[:, :, positions]).max() < 1e-13


def test_emulation_does_not_depend_on_the_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    for dtype in DTYPES:
        arrays = inputs.generate("independent", dtype, SHAPE, 0, 0)
        costs = []
        for block in (1 << 19, 500):
            monkeypatch.setattr(truth, "BLOCK_ELEMENTS", block)
            monkeypatch.setattr(rounding, "BLOCK", block)
            costs.append(unit(arrays, dtype)[1].costs)
        for name in rounding.NORMS:
            assert costs[0][name] == pytest.approx(costs[1][name], rel=1e-6)


def unit(
    arrays: tuple[np.ndarray, ...],
    dtype: str,
    causal: bool = False,
    precision: tuple[str, ...] = (),
    scale: float = SCALE,
) -> tuple[np.ndarray, rounding.ErrorScale]:
    exact, emulated = truth.attention(*arrays, causal, scale, dtype, precision=precision)
    ruler = rounding.Ruler(exact, dtype)
    return exact, rounding.ErrorScale(*rounding.measure([emulated], ruler), ruler)


def units(got: np.ndarray, error_scale: rounding.ErrorScale) -> dict[str, float]:
    found: dict[str, float] = error_scale.units(error_scale.ruler.norms(got))
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("recipe", ["independent", "shared_qkv", "large_logits"])
def test_the_rounded_truth_is_at_most_a_unit_in_every_norm(dtype: str, recipe: str) -> None:
    exact, error_scale = unit(inputs.generate(recipe, dtype, SHAPE, 0, 0), dtype)
    found = units(dtypes.quantise(exact, dtype), error_scale)
    assert all(0 < found[name] <= 1.001 for name in rounding.NORMS), found


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_wrong_scale_and_a_dropped_key_stand_far_above_the_limit(dtype: str) -> None:
    q, k, v = inputs.generate("independent", dtype, SHAPE, 0, 0)
    _, error_scale = unit((q, k, v), dtype)
    for wrong in (
        truth.attention(q, k, v, False, SCALE * 1.05, dtype)[0],
        truth.attention(q, k[:, :, :-1], v[:, :, :-1], False, SCALE, dtype)[0],
    ):
        assert units(wrong, error_scale)["largest"] > 8


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_faults_that_a_validation_makes_are_those_that_kernels_make(dtype: str) -> None:
    for causal in (False, True):
        q, k, v = inputs.generate("independent", dtype, (1, 2, 40, 16), 0, 0)
        made = {name: values for _, name, _, values, _ in faulty.wrong(q, k, v, causal, SCALE, dtype)}
        scaled = truth.attention(q, k, v, causal, SCALE * 1.001, dtype)[0]
        assert made["a softmax scale 0.1% too large"] == pytest.approx(scaled, abs=1e-5)
        keep = [*range(20), *range(21, 40)]
        if not causal:
            dropped = truth.attention(q, k[:, :, keep], v[:, :, keep], False, SCALE, dtype)[0]
            assert made["one key dropped"] == pytest.approx(dropped)
            eighth = [*range(20), *range(25, 40)]
            dropped = truth.attention(q, k[:, :, eighth], v[:, :, eighth], False, SCALE, dtype)[0]
            assert made["an eighth of the keys dropped"] == pytest.approx(dropped)
        mean = dtypes.decode(v, dtype)[:, :, : 31 if causal else 40].astype(np.float64).mean(axis=2)
        assert made["uniform weights"][:, :, 30] == pytest.approx(mean)


def test_a_float32_accumulator_is_part_of_the_float32_unit() -> None:
    arrays = inputs.generate("independent", "float32", (1, 1, 256, 64), 0, 0)
    _, error_scale = unit(arrays, "float32")
    assert 4 * 2.0**-24 < error_scale.costs["largest"] < 1e-4
    q, k, v = (array[0, 0] for array in arrays)
    logits = (q @ k.T) * np.float32(SCALE)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    plain = (weights @ v) / weights.sum(axis=1, keepdims=True)
    assert max(units(plain[None, None], error_scale).values()) < 4


def tensor_core(total: Any, left: Any, right: Any) -> Any:
    """Adds left [m, 8] @ right [8, n]: each product is cut off two bits below the last of the largest term's float32,
    and the sum of them is rounded."""
    products = left[:, :, None].astype(np.float64) * right[None].astype(np.float64)
    largest = np.maximum(np.abs(total), np.abs(products).max(axis=1))
    quantum = np.exp2(np.floor(np.log2(largest)) - 25)
    cut = np.trunc(products / quantum[:, None]) * quantum[:, None]
    return (total + cut.sum(axis=1)).astype(np.float32)


@pytest.mark.parametrize("mean", [0.0, 0.5])
def test_three_tf32_products_err_as_in_tensor_cores(mean: float) -> None:
    drawn = np.random.default_rng(20)
    one, other = (drawn.normal(mean, 1, shape).astype(np.float32) for shape in ((48, 256), (256, 48)))
    (large, small), (above, below) = (
        (part := rounding.tf32(array, truncate=True), rounding.tf32(array - part, truncate=False))
        for array in (one, other)
    )
    total = np.zeros((48, 48), np.float32)
    for at in range(0, 256, 8):
        some = slice(at, at + 8)
        for left, right in ((small, above), (large, below), (large, above)):
            total = tensor_core(total, left[:, some], right[some])
    exact = one.astype(np.float64) @ other.astype(np.float64)

    def shrunk(error: Any) -> float:
        return float((error * exact).sum() / (exact**2).sum()) / 2.0**-23

    seen, said = shrunk(total - exact), shrunk(rounding.three_products(one, other))
    assert seen < -1.0 and 0.5 * seen > said > 2 * seen, (seen, said)
    part = rounding.three_products(one[None, :, :200], other[None, :200])
    assert part.shape == (1, 48, 48)


@pytest.mark.slow
def test_an_h200s_attention_in_float32_is_within_a_few_units_of_three_products(tmp_path: Path) -> None:
    """The recorded errors of its default, the efficient backend, by both arithmetics."""
    (folder,) = committed(tmp_path, "h200-own-kernel")
    record = next(each for each in Run(folder).validations() if each.workload == "seed-fp32")
    for recipe in record.recipes:
        errors = next(target for target in recipe.targets if target.target == "default").against[0]
        arrays = inputs.generate(recipe.recipe, "float32", (1, 8, 512, 64), 20250101, 0)
        each = ((), (rounding.TF32X3_MATMUL,))
        costs = [unit(arrays, "float32", precision=names, scale=0.125)[1].costs for names in each]
        units = {name: errors.norms[name] * costs[0][name] / costs[1][name] for name in rounding.NORMS}
        assert all(0.4 < value < 1.6 for value in units.values()), (recipe.recipe, units)
        assert (errors.norms["bias"] > 4) == (recipe.recipe != "large_logits")


def test_declared_arithmetic_is_judged_as_such() -> None:
    """TF32 operands and float16 accumulators fail plainly, and pass as declared."""
    arrays = inputs.generate("independent", "float32", (1, 1, 128, 64), 0, 0)
    _, plain = unit(arrays, "float32")
    _, declared = unit(arrays, "float32", precision=(rounding.TF32_MATMUL,))
    coarse = truth.attention(*arrays, False, SCALE, "float32", precision=(rounding.TF32_MATMUL,))[1]
    assert max(units(coarse, plain).values()) > 20 and max(units(coarse, declared).values()) <= 1
    _, declared = unit(arrays, "float32", precision=(rounding.TF32X3_MATMUL,))
    split = truth.attention(*arrays, False, SCALE, "float32", precision=(rounding.TF32X3_MATMUL,))[1]
    assert units(split, plain)["bias"] > 2 and max(units(split, declared).values()) <= 1
    halves = inputs.generate("independent", "float16", (1, 1, 256, 64), 0, 0)
    _, plain = unit(halves, "float16")
    _, declared = unit(halves, "float16", precision=(rounding.FLOAT16_SUMS,))
    q, k, v = (array[0, 0] for array in halves)
    logits = np.zeros((256, 256), np.float16)
    for at in range(64):
        logits += q[:, at, None] * k[:, at]
    weights = np.exp(logits.astype(np.float32) * np.float32(SCALE)).astype(np.float16)
    added = np.zeros((256, 64), np.float16)
    for at in range(256):
        added += weights[:, at, None] * v[at]
    coarse = (added / weights.sum(axis=1, dtype=np.float32)[:, None]).astype(np.float16)[None, None]
    assert max(units(coarse, plain).values()) > 4 > max(units(coarse, declared).values())


def test_tf32_has_eleven_bits() -> None:
    values = np.array([1 + 2.0**-10 + 2.0**-12, 1 + 2.0**-11, 1 + 3 * 2.0**-11, -3.0], np.float32)
    assert rounding.tf32(values, truncate=False).tolist() == [1 + 2.0**-10, 1.0, 1 + 2.0**-9, -3.0]
    assert rounding.tf32(values, truncate=True).tolist() == [1 + 2.0**-10, 1.0, 1 + 2.0**-10, -3.0]


def test_sums_one_by_one_err_as_the_formula_says() -> None:
    generator = np.random.default_rng(0)
    for mean in (0.0, 1.0):
        terms = (generator.standard_normal((4096, 400)) + mean).astype(np.float32)
        total = np.zeros(400, np.float32)
        for row in terms:
            total += row
        exact = terms.astype(np.float64).sum(axis=0)
        expected = rounding.sum_error(np.square(terms, dtype=np.float64).sum(axis=0), exact, 4096, 2.0**-24)
        assert 0.4 < np.sqrt(np.mean(np.square((total - exact) / expected))) < 1.1


def test_rows_near_zero_do_not_blow_up() -> None:
    exact = np.zeros((2, 16))
    exact[0] = -2.0
    exact[1] = 1e-300
    ruler = rounding.Ruler(exact, "float32")
    assert ruler.row_largest.tolist() == [2.0, ruler.rms * rounding.SHARE]
    flat = rounding.Ruler(np.zeros((2, 16)), "float32")
    assert flat.row_largest.tolist() == [1.0, 1.0] and flat.norms(np.full((2, 16), 0.5))["largest"] == 0.5


def test_short_rows_count_together() -> None:
    assert rounding.as_rows(np.zeros((6, 4, 5))).shape == (6, 20)
    assert rounding.as_rows(np.zeros((6, 16))).shape == (6, 16)
    assert rounding.as_rows(np.zeros((7, 3))).shape == (1, 21)
    assert rounding.as_rows(np.float64(3)).shape == (1, 1)
    assert rounding.as_rows(np.zeros((0, 3))).shape == (0, 1)


class Counter:
    def __init__(self) -> None:
        self.truths = self.emulations = 0

    def __call__(self, known: np.ndarray | None) -> tuple[np.ndarray, Iterator[np.ndarray]]:
        self.truths += known is None
        return np.arange(6.0).reshape(2, 3) if known is None else known, self.emulated()

    def emulated(self) -> Iterator[np.ndarray]:
        self.emulations += 1
        yield np.arange(6.0).reshape(2, 3) * (1 + 2.0**-8)


def get(cache: truth.Cache, key: str, compute: Counter, precision: tuple[str, ...] = ()) -> truth.Exact:
    return cache.get(key, ["p"], (2, 3), "float16", precision, compute)


def test_cache_computes_once_per_input_problem_and_precision(tmp_path: Path) -> None:
    cache, compute = truth.Cache(str(tmp_path)), Counter()
    first = get(cache, "aa", compute)
    again = get(truth.Cache(str(tmp_path)), "aa", compute)
    assert (compute.truths, compute.emulations) == (1, 1)
    assert (first.values == again.values).all() and first.sha256 == again.sha256
    assert again.error_scale.costs == first.error_scale.costs
    assert again.error_scale.costs["largest"] == pytest.approx(2.0**-8)
    get(cache, "ab", compute)
    assert (compute.truths, compute.emulations) == (2, 2)
    get(cache, "aa", compute, ("float16_sums",))
    assert (compute.truths, compute.emulations) == (2, 3)
    modes = {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*.*")}
    assert modes == {0o644}, "in a container another user takes them out"


@pytest.mark.parametrize("damage", [b"", b"junk", None])
def test_a_damaged_cache_file_is_computed_again(tmp_path: Path, damage: bytes | None) -> None:
    cache, compute = truth.Cache(str(tmp_path)), Counter()
    get(cache, "aa", compute)
    path = Path(cache.path("aa", ["p"]))
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"\x01" if damage is None else damage)
    assert get(cache, "aa", compute).values[1, 2] == 5.0
    assert (compute.truths, compute.emulations) == (2, 1)
    assert path.read_bytes() == data
    unit_path = next(tmp_path.rglob("*.unit"))
    unit_path.write_bytes(b"{}" if damage is None else damage)
    get(cache, "aa", compute)
    assert (compute.truths, compute.emulations) == (2, 2)


def test_a_folder_that_cannot_be_written_costs_time_not_the_result(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    compute = Counter()
    assert get(truth.Cache(str(tmp_path / "file")), "aa", compute).values[1, 2] == 5.0
