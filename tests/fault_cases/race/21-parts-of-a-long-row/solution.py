"""A long row is split over programs, so that the whole device has work with few rows too."""

import torch
import triton
import triton.language as tl


@triton.jit
def sum_part(x, out, width, BLOCK: tl.constexpr):
    row, part = tl.program_id(1), tl.program_id(0)
    columns = part * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + row * width + columns, mask=columns < width, other=0.0)
    total = tl.load(out + row)
    tl.store(out + row, total + tl.sum(values, axis=0))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, width = x.shape
        out = x.new_zeros(rows)
        sum_part[(triton.cdiv(width, 256), rows)](x, out, width, BLOCK=256)
        return out
