"""attention_mma.cu and attention_scalar.cu under the emulator, on drawn problems, against float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.test_csrc import BF16, FP16, decode

from .emulated import (
    COMPILER,
    CSRC,
    Device,
    Emulated,
    Faulted,
    Problem,
    compile_objects,
    emulated,
    fault_shows,
    make_inputs,
    right,
)

pytestmark = pytest.mark.process
DRAWN = {"deadline": None, "derandomize": True, "suppress_health_check": [HealthCheck.function_scoped_fixture]}


@pytest.fixture(scope="module")
def mma(build: Callable[..., Path]) -> Iterator[Emulated]:
    """Launched early, where the emulator demands most: a thread must wait for what is before it in the stream."""
    with emulated(build(CSRC / "attention_mma.cu", flags=("-DEARLY_LAUNCH=1",))) as kernel:
        yield kernel


@pytest.fixture(scope="module")
def scalar(build: Callable[..., Path]) -> Iterator[Emulated]:
    with emulated(build(CSRC / "attention_scalar.cu")) as kernel:
        yield kernel


def device_for(rows: int, problem: Problem) -> Device:
    """A device on which `rows` rows make enough blocks, and twice as many rows do not."""
    blocks = -(-problem.seq_len // rows) * problem.batch * problem.heads
    return Device(multiprocessors=1 if rows == 128 else 1000 if rows == 16 else blocks)


@st.composite
def problems(draw: st.DrawFn, longest: int) -> Problem:
    head_dim = draw(st.sampled_from([64, 128]))
    return Problem(
        heads=draw(st.integers(1, 2)),
        seq_len=draw(st.integers(1, longest)),
        head_dim=head_dim,
        dtype=draw(st.sampled_from([FP16, BF16])),
        causal=draw(st.booleans()),
        scale=draw(st.sampled_from([1.0, 1.0, -1.0, 0.0, 4.0])) * head_dim**-0.5,
    )


@settings(max_examples=30, **DRAWN)
@given(st.data())
def test_against_float64(mma: Emulated, data: st.DataObject) -> None:
    problem = data.draw(problems(longest=160))
    rows = data.draw(st.sampled_from([16, 32, 64, 128]))
    inputs = make_inputs(problem, data.draw(st.integers(0, 99)), spread=data.draw(st.sampled_from([0.1, 1.0, 3.0])))
    schedules = data.draw(st.lists(st.integers(0, 2**31), min_size=2, max_size=2, unique=True))
    device = device_for(rows, problem)
    first, second = (right(mma, problem, schedule=each, device=device, inputs=inputs) for each in schedules)
    assert first.launches == 1 and first.bank_conflicts == 0
    assert f"BLOCK_M={rows} " in first.choice or problem.seq_len <= 64  # one block either way, or nearly
    assert first.output.tobytes() == second.output.tobytes(), "the bits depend on the schedule"


@pytest.mark.parametrize("rows", [16, 32, 64, 128])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_every_setting_on_a_length_that_is_no_multiple(mma: Emulated, rows: int, head_dim: int) -> None:
    problem = Problem(heads=1, seq_len=257, head_dim=head_dim, causal=head_dim == 64, scale=head_dim**-0.5)
    assert f"BLOCK_M={rows} " in right(mma, problem, rows, rows, device_for(rows, problem)).choice


def test_blocks_for_nearly_every_multiprocessor(mma: Emulated) -> None:
    """The seed problem, 8 heads of 512 rows on 132 multiprocessors, scaled down: 128 blocks are enough, 64 are not."""
    answer = right(mma, Problem(heads=1, seq_len=64), device=Device(multiprocessors=2))
    assert answer.blocks == 2 and "BLOCK_M=32 " in answer.choice


def test_shared_memory_of_an_older_device_is_respected(mma: Emulated) -> None:
    """sm_89 has 99 KiB for a block: settings that want more are passed over."""
    device = Device(major=8, minor=9, multiprocessors=2)
    assert "BLOCK_M=16 " in right(mma, Problem(heads=1, seq_len=64), device=device).choice


@pytest.mark.parametrize("tensor", [0, 1, 2], ids=["q", "k", "v"])
@pytest.mark.parametrize("rows", [16, 128])
def test_nan_reaches_every_row_that_sees_it(mma: Emulated, tensor: int, rows: int) -> None:
    problem = Problem(seq_len=100, causal=tensor == 1)
    inputs = make_inputs(problem, 0)
    inputs[tensor][0, 0, 70, 5] = np.nan
    answer = mma(problem, inputs, 3, device_for(rows, problem))
    missing = np.isnan(decode(answer.output, FP16))[0, 0]
    row = np.arange(100)
    expected = row == 70 if tensor == 0 else row >= (70 if problem.causal else 0)
    assert (missing[:, [5] if tensor == 2 else slice(None)] == expected[:, None]).all()


def test_refusals(mma: Emulated) -> None:
    for change, code in (({"head_dim": 32}, -3), ({"dtype": 2}, -4)):
        problem = Problem(seq_len=4, **change)
        assert mma(problem, make_inputs(problem, 0)).code == code


def broken(folder: Path, line: str, instead: str = "") -> Path:
    """The kernel without a line of it."""
    text, source = (CSRC / "attention_mma.cu").read_text(), folder / "broken.cu"
    assert text.count(line) == 1
    source.write_text(text.replace(line, instead))
    return source


# A barrier, a wait and a swizzle that are needed: without them the emulator must show it.
@pytest.mark.slow  # a program is compiled for each
@pytest.mark.parametrize(
    ("line", "instead", "rows"),
    [
        ("meet_group<S>(group);  // K is in, and the V before it is used up", "", 128),
        ("meet_group<S>(group);  // V is in, and this K is used up", "", 128),
        ("__syncthreads();  // Q is in", "", 128),
        ("__syncthreads();  // all groups are done with their tiles", "", 32),
        ("__syncthreads();  // all have left theirs", "", 32),
        ("ptx::wait_copies<2 * S::kStages - 1>();", ";", 32),
        ("ptx::wait_copies<2 * S::kStages>();", "", 32),
        ("(piece ^ (row % 8)) * 16", "piece * 16", 128),
    ],
    ids=["K", "V", "Q", "tiles", "merge", "wait for K", "wait for Q", "swizzle"],
)
def test_what_is_needed_is_missed(
    line: str, instead: str, rows: int, build: Callable[..., Path], tmp_path: Path
) -> None:
    tunables = {128: (128, 64, 4, 1, 1), 32: (32, 32, 2, 2, 1)}[rows]
    with emulated(build(broken(tmp_path, line, instead), flags=fixed(*tunables))) as kernel:
        assert fault_shows(kernel, Problem(seq_len=200), conflicts=True)


NAMES = ("BLOCK_M", "BLOCK_N", "WARPS_M", "WARPS_N", "STAGES", "HEAD_DIM", "EARLY_LAUNCH")
QUICK = ("-O0", "-g0", "-fno-sanitize=all")  # compiles in a third of the time


def fixed(*values: int, **others: int) -> tuple[str, ...]:
    """The compiler's flags for a setting."""
    return tuple(f"-D{n}={v}" for n, v in [*zip(NAMES, values, strict=False), *others.items()])


def test_a_setting_for_one_head_dim(build: Callable[..., Path]) -> None:
    """All keys of 512 under way at once in eight warps, which head_dim 128 has no room for."""
    with emulated(build(CSRC / "attention_mma.cu", flags=(*fixed(32, 64, 1, 8, 1, HEAD_DIM=64), *QUICK))) as kernel:
        assert kernel.tunables.endswith("WARPS_N=8 STAGES=1 HEAD_DIM=64 EARLY_LAUNCH=0")
        for head_dim, choice in ((64, "mma BLOCK_M=32 BLOCK_N=64 WARPS_M=1 "), (128, "mma BLOCK_M=16 ")):
            answer = right(kernel, Problem(seq_len=500, head_dim=head_dim, causal=head_dim == 64))
            assert answer.choice.startswith(choice)


def test_what_is_not_given_is_as_by_default(build: Callable[..., Path]) -> None:
    with emulated(build(CSRC / "attention_mma.cu", flags=(*fixed(64, STAGES=1), *QUICK))) as kernel:
        for head_dim, warps in ((64, "WARPS_M=2 WARPS_N=4"), (128, "WARPS_M=4 WARPS_N=2")):
            answer = right(kernel, Problem(seq_len=100, head_dim=head_dim))
            assert answer.choice == f"mma BLOCK_M=64 BLOCK_N=32 {warps} STAGES=1"


def test_the_stream_is_waited_for(build: Callable[..., Path], tmp_path: Path) -> None:
    problem = Problem(seq_len=20)
    program = build(broken(tmp_path, "    ptx::wait_for_stream();\n"), flags=(*fixed(32, EARLY_LAUNCH=1), *QUICK))
    with emulated(program) as kernel, pytest.raises(Faulted, match="was not awaited"):
        kernel(problem, make_inputs(problem, 0), 1)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ((48, 64, 2, 1, 1), "BLOCK_M must be 0, 16, 32, 64 or 128"),
        ((32, 64, 4, 1, 1), "BLOCK_M must be a multiple of 16 \\* WARPS_M"),
        ((128, 64, 2, 1, 1), "BLOCK_M / WARPS_M must be 16 or 32"),
        ((64, 24, 4, 1, 1), "BLOCK_N must be a multiple of 16"),
        ((64, 64, 4, 8, 1), "WARPS_M \\* WARPS_N must be at most 16"),
        ((64, 64, 4, 1, 5), "STAGES must be 1 to 4"),
        ((32, 128, 2, 4, 4), "leave the shared memory"),
        ((0, 64), "go with BLOCK_M"),
        ((64, 64, 4, 1, 1, 96), "HEAD_DIM must be 0, 64 or 128"),
        ((64, 64, 4, 1, 1, 0, 2), "EARLY_LAUNCH must be 0 or 1"),
    ],
    ids=["BLOCK_M", "WARPS_M", "rows", "BLOCK_N", "warps", "STAGES", "memory", "some", "HEAD_DIM", "EARLY_LAUNCH"],
)
def test_illegal_settings_do_not_compile(values: tuple[int, ...], reason: str, tmp_path: Path) -> None:
    if COMPILER is None:
        pytest.skip("no g++ on PATH")
    with pytest.raises(AssertionError, match=reason):
        compile_objects(tmp_path, [CSRC / "attention_mma.cu"], [*fixed(*values), "-fsyntax-only"])


@settings(max_examples=12, **DRAWN)
@given(st.data())
def test_the_scalar_kernel(scalar: Emulated, data: st.DataObject) -> None:
    problem = data.draw(problems(longest=80))
    first, second = (right(scalar, problem, schedule=schedule) for schedule in (1, 2))
    assert first.output.tobytes() == second.output.tobytes()
