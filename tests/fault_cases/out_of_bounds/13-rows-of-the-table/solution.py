"""One pass over the elements."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <cstdint>
#include <immintrin.h>

using Half = unsigned short;

extern "C" void rotate(const Half* from, Half* to, const std::int64_t* place, const Half* cos, const Half* sin,
                       std::int64_t heads, std::int64_t length, std::int64_t half) {
    for (std::int64_t row = 0; row < heads * length; ++row) {
        const std::int64_t entry = place[row % length] * half, at = row * 2 * half;
        for (std::int64_t i = 0; i < half; ++i) {
            const float left = _cvtsh_ss(from[at + i]), right = _cvtsh_ss(from[at + half + i]);
            const float c = _cvtsh_ss(cos[entry + i]), s = _cvtsh_ss(sin[entry + i]);
            to[at + i] = _cvtss_sh(left * c - right * s, 0);
            to[at + half + i] = _cvtss_sh(right * c + left * s, 0);
        }
    }
}
"""


def compiled(*flags):
    """C++ without PyTorch's headers is compiled in a second."""
    folder = Path(tempfile.mkdtemp())
    (folder / "kernel.cpp").write_text(SOURCE)
    command = ["g++", "-O2", "-shared", "-fPIC", *flags, "kernel.cpp", "-o", "kernel.so"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "kernel.so"))


native = compiled("-mf16c")
native.rotate.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_int64] * 3


class ModelNew(torch.nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        angle = torch.arange(rows)[:, None] * 10000.0 ** (-torch.arange(0, width, 2) / width)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, x, position):
        x = x.contiguous()
        y = torch.empty_like(x)
        assert x.dtype == self.cos.dtype == torch.float16
        tensors = [x, y, position.contiguous(), self.cos, self.sin]
        native.rotate(*(tensor.data_ptr() for tensor in tensors), *x.shape[:2], x.shape[2] // 2)
        return y
