"""A row at a time in float32, rows in parallel."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

static float widened(std::uint16_t x) {
    const std::uint32_t bits = static_cast<std::uint32_t>(x) << 16;
    float y;
    std::memcpy(&y, &bits, sizeof y);
    return y;
}

static std::uint16_t rounded(float x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

extern "C" void softmax(
    const std::uint16_t* from, std::uint16_t* to, std::int64_t rows, std::int64_t width, int threads) {
    std::vector<float> line(width);
    #pragma omp parallel for num_threads(threads)
    for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t i = 0; i < width; ++i) line[i] = widened(from[row * width + i]);
        const float top = *std::max_element(line.begin(), line.end());
        float sum = 0.0f;
        for (std::int64_t i = 0; i < width; ++i) sum += line[i] = std::exp(line[i] - top);
        for (std::int64_t i = 0; i < width; ++i) to[row * width + i] = rounded(line[i] / sum);
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


native = compiled("-fopenmp")
native.softmax.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 2 + [ctypes.c_int]


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        assert x.dtype == torch.bfloat16
        native.softmax(x.data_ptr(), y.data_ptr(), *x.shape, torch.get_num_threads())
        return y
