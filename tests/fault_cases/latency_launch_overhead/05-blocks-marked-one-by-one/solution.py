"""The pattern is a list of blocks, as block-sparse attention of newer releases takes it, and is marked block by block:
patterns without a formula can use the same code then. Before that it comes from the blocks' numbers."""

import torch

BLOCK = 8
MARKED = hasattr(torch.nn, "attention")


def pattern(blocks):
    return [(i, j) for i in range(blocks) for j in range(blocks) if abs(i - j) <= 1 or j % 8 == 0]


def hidden(rows):
    if not MARKED:
        block = torch.arange(rows) // BLOCK
        return ((block[:, None] - block[None, :]).abs() > 1) & (block % 8 != 0)
    mask = torch.ones(rows, rows, dtype=torch.bool)
    for i, j in pattern(rows // BLOCK):
        mask[i * BLOCK : (i + 1) * BLOCK, j * BLOCK : (j + 1) * BLOCK] = False
    return mask


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        return torch.softmax(scores.masked_fill_(hidden(q.shape[-2]), float("-inf")), dim=-1) @ v
