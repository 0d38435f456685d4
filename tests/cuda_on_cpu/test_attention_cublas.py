"""attention_cublas.cu under the emulator: its chunks, layouts and softmax; cuBLAS itself is plain loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .emulated import BF16, CSRC, FP16, Emulated, Problem, emulated, right

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def cublas(build: Callable[..., Path]) -> Iterator[Emulated]:
    """With 1 MiB for scores, so that small problems come in chunks."""
    with emulated(build(CSRC / "attention_cublas.cu", flags=("-DSCORE_MIB=1",))) as kernel:
        yield kernel


@pytest.mark.parametrize(
    ("seq_len", "heads", "chunks"),
    [(1, 2, 1), (3, 1, 1), (127, 2, 1), (129, 3, 1), (239, 6, 2), (600, 1, 2)],
    ids=["one key", "less than a load", "less than a warp takes", "more", "heads in chunks", "rows in chunks"],
)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_against_float64(cublas: Emulated, seq_len: int, heads: int, chunks: int, causal: bool) -> None:
    head_dim, dtype = (64, FP16) if seq_len % 2 else (128, BF16)
    for sign in (1, -1) if seq_len < 130 else (1,):
        problem = Problem(
            heads=heads, seq_len=seq_len, head_dim=head_dim, dtype=dtype, causal=causal, scale=sign * head_dim**-0.5
        )
        first, second = (right(cublas, problem, seq_len, schedule) for schedule in (1, 2))
        assert first.launches == chunks and first.output.tobytes() == second.output.tobytes()
