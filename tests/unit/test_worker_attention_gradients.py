"""Attention with gradients: truth, error scale, known wrong answers, and a part of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.worker import attention_gradients, dtypes, inputs, power, truth, wire
from harness.worker.attention import AttentionWorkload
from harness.worker.attention_gradients import OUTPUTS
from harness.worker.excerpt import excerpt
from harness.worker.orders import Picked

ASKED: dict[str, Any] = {
    "id": "x",
    "dtype": "float32",
    "batch": 2,
    "heads": 4,
    "seq_len": 21,
    "head_dim": 16,
    "scale": 0.25,
    "causal": False,
    "recipes": {"independent": 1},
    "backward": True,
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"causal": True},
    {"kv_len": 30},
    {"kv_len": 12, "causal": True},
    {"kv_heads": 2},
    {"mask": "padding"},
    {"mask": "empty_rows", "kv_heads": 1, "kv_len": 30},
    {"mask": "bias"},
    {"dropout": 0.25, "kv_heads": 2, "mask": "random"},
]
RULE = power.Rule({"rounding": 4.0, "kernelbench": 1e-2, "strict": 1e-3}, "rounding", [])


def workload(**options: Any) -> AttentionWorkload:
    return AttentionWorkload(wire.WorkloadRequest(**{**ASKED, **options}))


def forward(asked: AttentionWorkload, arrays: list[Any], tensors: list[Any]) -> Any:
    given = asked.given(arrays)
    mask = given.mask.astype(np.float64) if asked.mask == "bias" else given.mask
    return truth.attention(
        *tensors,
        asked.causal,
        asked.scale,
        "float64",
        mask=mask,
        keep=given.keep,
        dropout=asked.dropout,
        emulates=False,
    )[0]


@pytest.mark.parametrize("block", [1 << 19, 300])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_truth_is_the_slope_of_attention(options: dict[str, Any], block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truth, "BLOCK_ELEMENTS", block)
    asked = workload(**options)
    arrays = asked.arrays("independent", 0, 7)
    exact = asked.split(asked.computed(arrays)[0])
    tensors = [array.astype(np.float64) for array in arrays[:3]]
    along = asked.given(arrays).d_out.astype(np.float64)
    assert list(exact) == list(OUTPUTS)
    assert np.abs(exact["output"] - forward(asked, arrays, tensors)).max() < 1e-12
    for index, name in enumerate(OUTPUTS[1:]):
        step = 1e-6 * np.random.default_rng(0).standard_normal(tensors[index].shape)
        sides = []
        for sign in (1, -1):
            moved = [each + sign * step if at == index else each for at, each in enumerate(tensors)]
            sides.append((forward(asked, arrays, moved) * along).sum())
        assert (sides[0] - sides[1]) / 2 == pytest.approx((exact[name] * step).sum(), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_emulation_is_near_the_truth(options: dict[str, Any], dtype: str) -> None:
    asked = workload(dtype=dtype, **options)
    exact, emulated = map(asked.split, asked.computed(asked.arrays("independent", 0, 7)))
    for name in OUTPUTS:
        apart = np.abs(emulated[name] - exact[name]).max()
        assert 0 < apart < 60 * dtypes.UNIT_ROUNDOFF[dtype] * np.abs(exact[name]).max()


def test_the_output_is_judged_by_the_truth_and_the_error_scale_that_it_has_without_gradients(tmp_path: Path) -> None:
    asked, plain = workload(causal=True), workload(causal=True, backward=False)
    arrays = asked.arrays("independent", 0, 7)
    assert inputs.digest(plain.arrays("independent", 0, 7)) == inputs.digest(arrays[:3])
    one = asked.truths(arrays, "a", truth.Cache(str(tmp_path)))["output"]
    other = plain.truths(arrays[:3], "a", truth.Cache(str(tmp_path)))[""]
    assert np.abs(one.values - other.values).max() < 1e-14
    assert one.error_scale.costs == pytest.approx(other.error_scale.costs, rel=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("options", [{"causal": True}, {"dropout": 0.25, "kv_heads": 2, "mask": "random"}], ids=str)
def test_faults_of_gradients_are_seen(options: dict[str, Any], dtype: str, tmp_path: Path) -> None:
    asked = workload(dtype=dtype, seq_len=128, head_dim=64, scale=0.125, **options)
    found = {wrong.name: wrong for wrong in power.prove(asked, "independent", 1, 0, truth.Cache(str(tmp_path)), RULE)}
    faults = attention_gradients.faults(masked=True, dropped=asked.dropout > 0, shared=asked.kv_heads is not None)
    named = {name.partition(": ")[2] for name in found}
    assert {"zeros", "its input dO", *faults} <= named
    assert all(wrong.seen for wrong in found.values() if wrong.kind in ("zeros", "input", "gradient"))
    assert f"grad of v: {attention_gradients.NO_DELTA}" not in found, "there it is no fault"


def test_where_a_gradient_is_zero_zeros_are_right(tmp_path: Path) -> None:
    asked = workload(kv_len=1)
    arrays = asked.arrays("independent", 0, 7)
    exact = asked.split(asked.computed(arrays)[0])
    assert not exact["grad of q"].any() and not exact["grad of k"].any() and exact["grad of v"].any()
    found = power.prove(asked, "independent", 1, 0, truth.Cache(str(tmp_path)), RULE)
    assert not power.undecidable(found)
    assert {wrong.name.partition(":")[0] for wrong in found if wrong.kind == "zeros"} == {"output", "grad of v"}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_part_of_a_timed_call_has_the_truth_that_it_has_among_all(options: dict[str, Any]) -> None:
    asked = workload(**options)
    arrays = asked.arrays("independent", 0, 7)
    output = asked.computed(arrays)[0]
    assert asked.fits(output.shape, "float32") and asked.expected_output() == (output.shape, "float32")
    part, pick = excerpt(asked, Picked("timed", arrays, output, "float32"))
    assert part.fits(pick.output.shape, "float32") and pick.output.size < output.size
    assert [array.shape for array in pick.arrays] == [shape for shape, _ in part.inputs]
    assert np.abs(part.computed(pick.arrays)[0] - pick.output).max() < 1e-12


def test_directions_are_the_recorded_bytes() -> None:
    found = inputs.direction("float16", (2, 3, 17, 9), 7, 3)
    assert inputs.digest([found]) == "5ae184200394d541187af0a10c5cd2239ad8bbc6eb3b0d0fa6e5052f63d39f19"
