"""Sparse attention: each block of 16 rows sees its own keys and those of three other blocks, drawn once."""

import numpy
import torch

BLOCK, OTHERS = 16, 3


def pattern(blocks):
    seen = torch.eye(blocks, dtype=torch.bool)
    for block in range(blocks):
        seen[block, torch.from_numpy(numpy.random.permutation(blocks)[:OTHERS])] = True
    return seen


class Model(torch.nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.hidden = ~pattern(rows // BLOCK).repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)

    def forward(self, q, k, v):
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        return torch.softmax(scores.masked_fill(self.hidden, float("-inf")), dim=-1) @ v


def get_inputs():
    return [torch.randn(1, 2, 192, 64) for _ in range(3)]


def get_init_inputs():
    return [192]
