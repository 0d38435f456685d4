"""Truth, its cache, and the error scale made from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.worker import rounding, truth


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
