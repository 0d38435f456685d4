"""attention_wgmma under the emulator: right at every shape, whatever the order of threads and of arriving boxes.

What the descriptors, swizzles and fragments mean is emulator/hopper.h's reading of the PTX ISA, not the kernel's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from .emulated import BF16, CSRC, FP16, Device, Emulated, Problem, emulated, fault_shows, make_inputs, right

pytestmark = pytest.mark.process
KERNEL = CSRC / "attention_wgmma.cu"
Build = Callable[..., Path]
TALL = {64: 192, 128: 128}  # rows of a block where there are enough of them


@pytest.fixture(scope="module")
def kernel(build: Build) -> Iterator[Emulated]:
    with emulated(build(KERNEL, CSRC / "attention_mma.cu")) as running:
        yield running
        running.close()


def device_for(rows: int, problem: Problem) -> Device:
    """A device with a multiprocessor for each block of so many rows."""
    return Device(multiprocessors=-(-problem.seq_len // rows) * problem.batch * problem.heads)


def check(kernel: Emulated, problem: Problem, schedule: int, tall: bool) -> None:
    rows = TALL[problem.head_dim]
    answer = right(kernel, problem, schedule, schedule, device_for(rows, problem) if tall else Device())
    assert answer.launches == 1 and answer.choice.startswith(f"wgmma BLOCK_M={rows if tall else 64} ")


# Around the edges of 16-row warps, 64-row warpgroups, tiles of 64 and 128 keys, and of 64, 128 and 192 rows.
LENGTHS = (1, 63, 64, 65, 127, 128, 129, 192, 239, 257, 385)


@pytest.mark.parametrize("tall", [True, False], ids=["tall", "low"])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("seq_len", LENGTHS)
def test_lengths(kernel: Emulated, seq_len: int, head_dim: int, tall: bool) -> None:
    """Each length in one dtype with a mask and in the other without, so that all of them meet in the end."""
    for causal in (False, True):
        dtype = FP16 if (LENGTHS.index(seq_len) + causal) % 2 else BF16
        check(kernel, Problem(seq_len=seq_len, head_dim=head_dim, dtype=dtype, causal=causal), seq_len, tall)


@pytest.mark.parametrize("schedule", range(4))
def test_schedules(kernel: Emulated, schedule: int) -> None:
    check(kernel, Problem(seq_len=300, head_dim=128, causal=bool(schedule % 2)), schedule, schedule < 3)


@pytest.mark.parametrize(
    ("causal", "seq_len"), [(False, 500), (True, 380), (True, 500)], ids=["all keys", "odd number of tiles", "even"]
)
def test_blocks_that_take_several_tiles(kernel: Emulated, causal: bool, seq_len: int) -> None:
    """One multiprocessor: its block goes through all tiles of all heads, causal ones in pairs."""
    problem = Problem(batch=1, heads=2, seq_len=seq_len, head_dim=128, causal=causal)
    answer = right(kernel, problem, 3, 3, Device(multiprocessors=1))
    assert (answer.launches, answer.blocks) == (1, 1)


def test_low_blocks_where_tall_ones_are_too_few(kernel: Emulated) -> None:
    """7 in 8 multiprocessors are enough: 7 tall blocks on 8 of them, but not on 9, nor half as many."""
    for head_dim, rows in TALL.items():
        for blocks, multiprocessors, chosen in ((7, 8, rows), (7, 9, 64), (1, 2, 64)):
            problem = Problem(heads=blocks, seq_len=rows if blocks == 1 else 1, head_dim=head_dim, causal=blocks == 1)
            answer = right(kernel, problem, 4, device=Device(multiprocessors=multiprocessors))
            assert answer.choice.startswith(f"wgmma BLOCK_M={chosen} "), (head_dim, blocks, multiprocessors)


def test_the_same_bits_whatever_the_schedule(kernel: Emulated) -> None:
    problem = Problem(heads=2, seq_len=200, head_dim=64, causal=True)
    outputs = [right(kernel, problem, 1, schedule).output for schedule in range(3)]
    assert all(np.array_equal(outputs[0], output) for output in outputs[1:])


def test_scores_far_apart(kernel: Emulated) -> None:
    """The largest score of a row rises from tile to tile; what came before shrinks to nothing."""
    problem = Problem(seq_len=300, head_dim=64, scale=2.0)
    q, k, v = make_inputs(problem, 5)
    order = np.argsort(-(q[0, 0, :1].astype(np.float64) @ k[0, 0].astype(np.float64).T)[0])
    right(kernel, problem, inputs=[q, np.ascontiguousarray(k[:, :, order]), v])


def test_what_is_given_holds_for_every_problem_of_its_head_dim(build: Build) -> None:
    """Beside it, what a tall block has; the other head_dim is left to the problem."""
    flags = ("-DBLOCK_N_64=64", "-DCONSUMERS_64=2", "-fno-sanitize=all", "-g0")
    with emulated(build(KERNEL, CSRC / "attention_mma.cu", flags=flags)) as fixed:
        assert fixed.tunables.startswith("CONSUMERS_64=2 CONSUMERS_128=0 BLOCK_N_64=64 BLOCK_N_128=0 STAGES_64=0 ")
        for head_dim, choice in ((64, "wgmma BLOCK_M=128 BLOCK_N=64 STAGES=2"), (128, "wgmma BLOCK_M=64 ")):
            assert right(fixed, Problem(seq_len=150, head_dim=head_dim, causal=True)).choice.startswith(choice)


@pytest.mark.parametrize(
    ("device", "scale"),
    [(Device(major=8), 0.125), (Device(), -0.125), (Device(), 0.0), (Device(), 1e-42)],
    ids=["no wgmma", "negative", "zero", "subnormal"],
)
def test_what_is_left_to_attention_mma(kernel: Emulated, device: Device, scale: float) -> None:
    answer = right(kernel, Problem(seq_len=100, head_dim=64, causal=True, scale=scale), 2, device=device)
    assert device.major != 8 or not answer.choice.startswith("wgmma")


# One statement of the kernel each: what stands there, and what is put in its place.
FAULTS = {
    "keys not awaited": ("wait(shared_.k_filled[at_.stage], at_.parity);\n        if (kTurns)", "if (kTurns)"),
    "stage never released": (
        "wgmma_wait_group<1>(scores);\n        release(shared_.k_used[at_.stage]);",
        "wgmma_wait_group<1>(scores);",
    ),
    "scores not awaited": ("wgmma_wait_group<1>(scores);", "wgmma_wait_group<2>(scores);"),
    "weights overwritten": (
        "exponentials<MASKED>(scores, rows, shrink, shape_.scale_log2);",
        "exponentials<MASKED>(scores, rows, shrink, shape_.scale_log2); round(scores, weights);",
    ),
    "panels elsewhere": ("shared_address(shared.v), S::kBlockN * ptx::kRowBytes", "shared_address(shared.v), 1024"),
    "no fence": (
        "        ptx::wgmma_fence();\n#pragma unroll\n        for (int key",
        "#pragma unroll\n        for (int key",
    ),
    "stream not awaited": ("    ptx::wait_for_stream();\n", ""),
}


@pytest.mark.slow  # a program is compiled for each
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults(build: Build, tmp_path: Path, fault: str) -> None:
    """Alone in a program of one kernel, which compiles in a quarter of the time."""
    text = KERNEL.read_text()
    only = "<__half, Settings<128>::Tall, false>"
    edits = [FAULTS[fault], ("forward_kernel<__half, Settings<64>::Tall, false>", f"forward_kernel{only}")]
    start, end = text.index("    return choose(problem, [&]"), text.index("template <typename S>\nconst char* describe")
    text = text[:start] + f"return launch{only}(problem, q, k, v, o, stream);\n}}\n" + text[end:]
    text = text.replace("attention_mma::forward(problem, q, k, v, o, stream)", "-100")
    text = text.replace("attention_mma::choice(problem)", '"none"')
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    source = tmp_path / "faulty.cu"
    source.write_text(text)
    problem = Problem(seq_len=500, head_dim=128)  # four key tiles: stages are used again
    with emulated(build(source, flags=("-fno-sanitize=all", "-g0", "-DEARLY_LAUNCH=1"))) as faulty:
        assert fault_shows(faulty, problem, Device(multiprocessors=1))
