"""attention.cu: which family gets a problem, and that what it says is what it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .emulated import CSRC, FP32, Device, Emulated, Problem, emulated, make_inputs, right

pytestmark = pytest.mark.process
SOURCES = [CSRC / f"attention{name}.cu" for name in ("", "_mma", "_wgmma", "_cublas")]


@pytest.fixture(scope="module")
def dispatcher(build: Callable[..., Path]) -> Iterator[Emulated]:
    with emulated(build(*SOURCES)) as kernel:
        yield kernel


@pytest.mark.parametrize(
    ("device", "family"),
    [
        (Device(multiprocessors=132), "mma BLOCK_M=16 "),
        (Device(multiprocessors=3), "mma BLOCK_M=32 "),
        (Device(multiprocessors=2), "wgmma BLOCK_M=64 "),
        (Device(multiprocessors=1), "wgmma BLOCK_M=192 "),
        (Device(major=8, multiprocessors=1), "mma BLOCK_M=128 "),
        (Device(major=8, minor=9, multiprocessors=1), "mma BLOCK_M=128 "),
    ],
    ids=["few rows", "too few for blocks of 64", "enough for those", "enough for tall ones", "sm_80", "sm_89"],
)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_the_choice(dispatcher: Emulated, device: Device, family: str, causal: bool) -> None:
    assert dispatcher.tunables == "FAMILY=auto"
    answer = right(dispatcher, Problem(seq_len=100, causal=causal), device=device)
    assert answer.launches == 1 and answer.choice.startswith(family)


def test_what_no_family_takes(dispatcher: Emulated) -> None:
    problem = Problem(seq_len=4, dtype=FP32)
    assert dispatcher(problem, make_inputs(problem, 0)).code == -4
