"""A program for each beam."""

import torch
import triton
import triton.language as tl


@triton.jit
def best_of_beam(scores, out, width, BLOCK: tl.constexpr):
    beam = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    own = tl.load(scores + beam * width + columns, mask=columns < width, other=float("-inf"))
    tl.store(out + beam, tl.max(own, axis=0))


class ModelNew(torch.nn.Module):
    def forward(self, scores):
        beams, width = scores.shape
        out = scores.new_empty(beams)
        best_of_beam[(beams,)](scores, out, width, BLOCK=triton.next_power_of_2(width))
        return out
