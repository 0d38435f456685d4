"""The emulator finds the faults that it is there for, and none in a kernel without."""

from __future__ import annotations

import numpy as np
import pytest

from .emulated import Answer, Emulated, Faulted, Problem, make_inputs

pytestmark = pytest.mark.process
TILES = 2  # of 2 KiB, for each head
SCHEDULES = range(6)


def run(kernel: Emulated, fault: int, schedule: int = 0) -> tuple[Answer, bool]:
    """The answer, and whether it is right."""
    problem = Problem(heads=fault, seq_len=16 * TILES)
    inputs = make_inputs(problem, 0)
    answer = kernel(problem, inputs, schedule)
    chunks = inputs[0].reshape(TILES * fault, 128, 8)
    return answer, np.array_equal(answer.output.reshape(chunks.shape), np.roll(chunks, -37, axis=1))


def test_a_kernel_without_faults(planted: Emulated) -> None:
    for schedule in SCHEDULES:
        answer, right = run(planted, 1, schedule)
        assert (answer.code, answer.launches, answer.blocks, right) == (0, 1, 1, True)


@pytest.mark.parametrize(
    ("fault", "always"),
    [(2, True), (3, False), (4, False), (5, True)],
    ids=["no wait for a copy", "no barrier behind a copy", "refilled too early", "unset shared variable"],
)
def test_wrong_outputs(planted: Emulated, fault: int, always: bool) -> None:
    """NaN where memory is not set, and by some schedules where order is not."""
    right = [run(planted, fault, schedule)[1] for schedule in SCHEDULES]
    assert not any(right) if always else not all(right)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (6, "use-after-poison"),
        (7, "heap-buffer-overflow"),
        (8, "different barriers|deadlock"),
        (9, "lanes of warp . wait for one another at different places"),
        (10, "warp 2, lanes 13-13: has ended"),
        (11, "barrier 1 awaits"),
        (12, "is not a multiple of 16"),
        (13, "not to the caller's"),
        (14, "1 allocations were not freed"),
    ],
    ids=[
        "shared",
        "global",
        "half at a barrier",
        "lanes apart",
        "one leaves",
        "other count",
        "misaligned",
        "other stream",
        "not freed",
    ],
)
def test_faults_that_end_the_program(planted: Emulated, fault: int, words: str) -> None:
    with pytest.raises(Faulted, match=words):
        run(planted, fault, schedule=1)


def test_more_shared_memory_than_was_asked_for(planted: Emulated) -> None:
    assert run(planted, 15)[0].code == 1  # cudaErrorInvalidValue, as the runtime's


def test_a_deadlock_says_who_waits_where(planted: Emulated) -> None:
    with pytest.raises(Faulted, match=r"warp 0, lanes 0-31: waits in __syncthreads at planted.cu:\d+"):
        run(planted, 10)
