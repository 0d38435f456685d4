"""A program for each row, which has the whole of it in registers."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_row(x, out, width, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    at = tl.program_id(0) * width + columns
    logits = tl.load(x + at)
    weights = tl.exp(logits - tl.max(logits, axis=0))
    tl.store(out + at, weights / tl.sum(weights, axis=0), mask=columns < width)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        rows, width = x.shape
        softmax_row[(rows,)](x, out, width, BLOCK=triton.next_power_of_2(width))
        return out
