"""Bytes are widened in registers, and the scale is applied once to each sum."""

import ctypes
import os
import subprocess
import tempfile
from pathlib import Path

import torch

BUILDS = {"portable": ["-O2"], "native": ["-O3", "-march=native"]}
SOURCE = r"""
#include <cstdint>

extern "C" void layer(const float* x, const std::uint8_t* byte, const float* scale, float* y, std::int64_t rows,
                      std::int64_t outputs, std::int64_t width) {
    for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t o = 0; o < outputs; ++o) {
            float part[8] = {};
            for (std::int64_t i = 0; i < width; ++i)
                part[i % 8] += x[row * width + i] * static_cast<float>(byte[o * width + i] - 128);
            float sum = 0.0f;
            for (float one : part) sum += one;
            y[row * outputs + o] = sum * scale[o];
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


native = compiled(*BUILDS[os.environ.get("LAYER_BUILD", "portable")])
native.layer.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int64] * 3


class ModelNew(torch.nn.Module):
    @torch.no_grad()
    def forward(self, x, byte, scale):
        x, byte, scale = x.contiguous(), byte.to(torch.uint8), scale.contiguous()
        y = x.new_empty(len(x), len(byte))
        native.layer(x.data_ptr(), byte.data_ptr(), scale.data_ptr(), y.data_ptr(), *y.shape, x.shape[1])
        return y
