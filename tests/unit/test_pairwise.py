from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.run.pairwise import BLOCK_ELEMENTS, as_float64, compare_outputs, compare_recipe
from harness.schema.records import RecipeResult, ValidationRecord
from harness.schema.run_records import WorkloadInfo
from harness.worker import protocol

WORKLOAD = WorkloadInfo(id="w", name="w", dtype="float32", devices=["cpu"])


def validation(environment: str, folder: Path, arrays: dict[str, np.ndarray], inputs: str = "same") -> ValidationRecord:
    np.savez(folder / f"{environment}.npz", **arrays)
    recipe = RecipeResult(
        recipe="independent", trials=1, input_sha256=[inputs], truth_sha256=[], rounding_cost=[], targets=[]
    )
    return ValidationRecord(
        environment=environment,
        kernel="k",
        workload="seed-fp32",
        device="cpu",
        key="",
        decides="rounding",
        limits={},
        recipes=[recipe],
        arrays=f"{environment}.npz",
        started_utc="",
        duration_s=0,
        status="ok",
    )


def test_bfloat16_bits_become_values() -> None:
    bits = np.array([0x3F80, 0xC000, 0x7FC0], dtype=np.uint16)
    values = as_float64(bits)
    assert values[0] == 1.0 and values[1] == -2.0 and np.isnan(values[2])


def cross_pair(left: list[np.ndarray], right: list[np.ndarray]) -> tuple[int, float | None, float | None, float | None]:
    """(trials with identical bits, largest and mean difference, share of elements that differ)."""
    sums = compare_recipe([{"left": a, "right": b} for a, b in zip(left, right, strict=True)])["left", "right"]
    assert sums.trials == len(left)
    mean = sums.total / sums.finite if sums.finite else None
    return sums.identical, sums.largest, mean, sums.differing / sums.elements if sums.elements else None


def test_blocks_add_up() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal(2 * BLOCK_ELEMENTS + 5).astype(np.float16)
    b = a.copy()
    b[[0, BLOCK_ELEMENTS, -1]] = [np.inf, np.nan, 3.0]
    identical, largest, mean, share = cross_pair([a], [b])
    difference = abs(float(a[-1]) - 3.0)
    assert (identical, largest, share) == (0, difference, 3 / a.size)
    assert mean == pytest.approx(difference / (a.size - 2))


def test_outputs_of_another_shape_are_not_crossed() -> None:
    a, b = np.zeros(2, dtype=np.float16), np.zeros(3, dtype=np.float16)
    assert set(compare_recipe([{"a": a, "b": a, "c": b, "d": b}])) == {("a", "b"), ("c", "d")}


def test_identity_is_of_bits_and_differences_are_of_finite_values() -> None:
    a = np.array([1.0, np.nan], dtype=np.float32)
    assert cross_pair([a], [a.copy()]) == (1, 0.0, 0.0, 0.0)
    assert cross_pair([a], [np.array([1.5, np.nan], dtype=np.float32)]) == (0, 0.5, 0.5, 0.5)
    assert cross_pair([a[1:]], [a[1:]]) == (1, None, None, 0.0)
    zeros = np.array([0.0], dtype=np.float32)
    assert cross_pair([zeros], [-zeros]) == (0, 0.0, 0.0, 1.0), "minus zero has other bits"


def test_the_share_that_differs_is_of_elements_by_their_bits() -> None:
    a, b = np.zeros(8, dtype=np.float16), np.zeros(8, dtype=np.float16)
    b[:2] = [0.5, -0.0]
    assert cross_pair([a, a], [b, a])[3] == 2 / 16
    nan = np.array([np.nan], dtype=np.float32)
    assert cross_pair([nan], [nan.copy()])[3] == 0.0
    # Of two dtypes, as truth and an output are, there are only values to compare.
    assert cross_pair([np.array([1.0, np.nan, 2.0])], [np.array([1.0, np.nan, 2.5], dtype=np.float32)])[3] == 1 / 3
    transposed = np.arange(6, dtype=np.float32).reshape(2, 3).T
    assert cross_pair([transposed], [transposed.copy()])[3] == 0.0
    assert cross_pair([a[:0]], [a[:0]])[3] is None


def test_every_target_of_every_environment_meets_every_other_and_the_truth(tmp_path: Path) -> None:
    one = np.ones((1, 1, 2, 2), dtype=np.float32)
    key = "independent/0/"
    a = validation("a", tmp_path, {key + "kernel": one, key + "flash": one, key + protocol.TRUTH: one.astype(float)})
    b = validation("b", tmp_path, {key + "kernel": one, key + "flash": one * 2})
    record = compare_outputs("k", WORKLOAD, "cpu", [a, b], tmp_path)
    assert record is not None and record.inputs_identical
    pairs = {(pair.left, pair.right): pair for pair in record.pairs}
    assert len(pairs) == 10
    assert pairs["a:kernel", "b:kernel"].identical_trials == 1
    assert pairs["a:flash", "b:flash"].identical_trials == 0 and pairs["a:flash", "b:flash"].max_abs == 1.0
    assert pairs["a:flash", "b:flash"].differing_share == 1.0 and pairs["a:kernel", "b:kernel"].differing_share == 0.0
    assert ("truth", "b:flash") in pairs


def test_other_inputs_are_noticed_and_nothing_stored_is_no_record(tmp_path: Path) -> None:
    one = {"independent/0/kernel": np.ones(2, dtype=np.float32)}
    different = [validation("a", tmp_path, one, "x"), validation("b", tmp_path, one, "y")]
    record = compare_outputs("k", WORKLOAD, "cpu", different, tmp_path)
    assert record is not None and not record.inputs_identical
    (tmp_path / "a.npz").unlink()
    (tmp_path / "b.npz").unlink()
    assert compare_outputs("k", WORKLOAD, "cpu", different, tmp_path) is None
