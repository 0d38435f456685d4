"""The template that `kernel-matrix new mine.cu` writes, under the emulator, which knows launches by function alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cli.start import CUDA

from .emulated import FP16, FP32, Problem, emulated, make_inputs, right

pytestmark = pytest.mark.process
LAUNCH = "attention<T><<<grid, THREADS, 0, static_cast<cudaStream_t>(stream)>>>("
BY_FUNCTION = """
template <typename... P, typename... V>
void launched(void (*kernel)(P...), dim3 grid, int threads, cudaStream_t stream, V... values) {
    cudaLaunchConfig_t config{};
    config.gridDim = grid, config.blockDim = dim3(threads), config.stream = stream;
    cudaLaunchKernelEx(&config, kernel, static_cast<P>(values)...);
}
"""


def test_against_float64(build: Callable[..., Path], tmp_path: Path) -> None:
    assert LAUNCH in CUDA
    text = CUDA.replace(LAUNCH, "launched(attention<T>, grid, THREADS, static_cast<cudaStream_t>(stream), ")
    source = tmp_path / "template.cu"
    source.write_text(text.replace("\nnamespace {", f"{BY_FUNCTION}\nnamespace {{", 1))
    with emulated(build(source)) as kernel:
        for seq_len, head_dim in ((1, 64), (63, 128), (65, 64), (129, 20)):
            for dtype in (FP16, FP32):
                for causal in (False, True):
                    shape = {"heads": 2, "seq_len": seq_len, "head_dim": head_dim, "scale": head_dim**-0.5}
                    right(kernel, Problem(dtype=dtype, causal=causal, **shape), seq_len)  # type: ignore[arg-type]
        wide = Problem(head_dim=256)
        assert kernel(wide, make_inputs(wide, 0)).code < 0
