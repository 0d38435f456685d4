"""Blocks of a channel one after another. Newer Tritons go from the end, where the cache still has what was written."""

import torch
import triton
import triton.language as tl

FROM_THE_END = int(triton.__version__.split(".")[0]) >= 3


@triton.jit
def energy_of_channel(x, out, width, blocks, BLOCK: tl.constexpr, BACKWARDS: tl.constexpr):
    channel = tl.program_id(0)
    sums = tl.zeros([BLOCK], tl.float32)
    for number in range(blocks):
        block = blocks - 1 - number if BACKWARDS else number
        columns = block * BLOCK + tl.arange(0, BLOCK)
        values = tl.load(x + channel * width + columns, mask=columns < width, other=0.0)
        sums += values * values
    tl.store(out + channel, tl.sum(sums, axis=0))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        channels, width = x.shape
        out = x.new_empty(channels)
        blocks = triton.cdiv(width, 256)
        energy_of_channel[(channels,)](x, out, width, blocks, BLOCK=256, BACKWARDS=FROM_THE_END)
        return out
