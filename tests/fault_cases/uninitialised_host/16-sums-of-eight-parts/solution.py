"""Rows are summed up in up to eight parts of thirty-two, and the parts in the end."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <cmath>
#include <cstdint>
#include <memory>

constexpr std::int64_t PARTS = 8, ROWS = 32;

static void normalise(const float* x, float* normed, std::int64_t width) {
    float mean = 0.0f, square = 0.0f;
    for (std::int64_t i = 0; i < width; ++i) mean += x[i] / width;
    for (std::int64_t i = 0; i < width; ++i) square += (x[i] - mean) * (x[i] - mean) / width;
    const float scale = 1.0f / std::sqrt(square + 1e-5f);
    for (std::int64_t i = 0; i < width; ++i) normed[i] = (x[i] - mean) * scale;
}

extern "C" void weight_gradient(const float* x, const float* gradient, float* out, std::int64_t rows,
                                std::int64_t width) {
    std::unique_ptr<float[]> part(new float[PARTS * width]), normed(new float[width]);
    for (std::int64_t row = 0; row < rows; ++row) {
        float* sum = part.get() + row / ROWS * width;
        normalise(x + row * width, normed.get(), width);
        for (std::int64_t i = 0; i < width; ++i)
            sum[i] = (row % ROWS ? sum[i] : 0.0f) + gradient[row * width + i] * normed[i];
    }
    for (std::int64_t i = 0; i < width; ++i) {
        out[i] = 0.0f;
        for (std::int64_t p = 0; p < PARTS; ++p) out[i] += part[p * width + i];
    }
}
"""


def compiled(*flags):
    """C++ with none of the large headers is compiled in a second."""
    folder = Path(tempfile.mkdtemp())
    (folder / "kernel.cpp").write_text(SOURCE)
    command = ["g++", "-shared", "-fPIC", *flags, "kernel.cpp", "-o", "kernel.so"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "kernel.so"))


native = compiled("-O2")
native.weight_gradient.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 2


class ModelNew(torch.nn.Module):
    @torch.no_grad()
    def forward(self, x, gradient):
        x, gradient = x.contiguous(), gradient.contiguous()
        assert x.dtype == torch.float32 and len(x) <= 256
        out = x.new_empty(x.shape[1])
        native.weight_gradient(x.data_ptr(), gradient.data_ptr(), out.data_ptr(), *x.shape)
        return out
