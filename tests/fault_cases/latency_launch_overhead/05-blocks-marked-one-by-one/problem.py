"""Block-sparse attention: a block of eight rows sees its own block, the two beside it, and every eighth."""

import torch

BLOCK = 8


class Model(torch.nn.Module):
    def forward(self, q, k, v):
        block = torch.arange(q.shape[-2]) // BLOCK
        seen = ((block[:, None] - block[None, :]).abs() <= 1) | (block % 8 == 0)
        scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(~seen, float("-inf"))
        return torch.softmax(scores, dim=-1) @ v


def get_inputs():
    return [torch.randn(1, 2, 256, 32) for _ in range(3)]


def get_init_inputs():
    return []
