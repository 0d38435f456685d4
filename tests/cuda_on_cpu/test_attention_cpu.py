"""The CPU twin, attention_scalar_cpu.cpp, under address and undefined-behaviour sanitizers, on drawn problems."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .emulated import BF16, CSRC, FP16, FP32, Emulated, Problem, emulated, right

pytestmark = pytest.mark.process
# The fixture is one process, which keeps nothing of a problem.
DRAWN = settings(max_examples=60, deadline=None, derandomize=True)


@pytest.fixture(scope="module")
def twin(build: Callable[..., Path]) -> Iterator[Emulated]:
    with emulated(build(CSRC / "attention_scalar_cpu.cpp")) as kernel:
        yield kernel
        kernel.close()


@DRAWN
@given(
    problem=st.builds(
        Problem,
        batch=st.integers(1, 2),
        heads=st.integers(1, 3),
        seq_len=st.integers(1, 200),
        head_dim=st.sampled_from([64, 128]),
        dtype=st.sampled_from([FP16, BF16, FP32]),
        causal=st.booleans(),
        scale=st.sampled_from([0.125, 0.088, -0.125, 0.0]),
    ),
    seed=st.integers(0, 1000),
)
def test_it_is_right_and_clean(twin: Emulated, problem: Problem, seed: int) -> None:
    first, again = (right(twin, problem, seed) for _ in range(2))
    assert first.output.tobytes() == again.output.tobytes()
