"""Bags in one loop; each ends where the next one starts."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <cstdint>

extern "C" void sum_bags(const float* table, const std::int64_t* token, const std::int64_t* start, float* out,
                         std::int64_t bags, std::int64_t width) {
    for (std::int64_t bag = 0; bag < bags; ++bag)
        for (std::int64_t t = start[bag]; t < start[bag + 1]; ++t)
            for (std::int64_t i = 0; i < width; ++i) out[bag * width + i] += table[token[t] * width + i];
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
native.sum_bags.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int64] * 2


class ModelNew(torch.nn.Module):
    @torch.no_grad()
    def forward(self, table, token, start):
        table, token, start = table.contiguous(), token.contiguous(), start.contiguous()
        out = table.new_zeros(len(start), table.shape[1])
        native.sum_bags(table.data_ptr(), token.data_ptr(), start.data_ptr(), out.data_ptr(), *out.shape)
        return out
