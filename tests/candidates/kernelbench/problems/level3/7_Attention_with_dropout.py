import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Causal self-attention with projections, a bias that is drawn at construction, and dropout, in training."""

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.drop = nn.Dropout(dropout)
        self.slope = torch.rand(heads)  # neither parameter nor buffer: the seed alone makes it equal in both

    def forward(self, x):
        batch, rows, width = x.shape
        q, k, v = (t.view(batch, rows, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        scores = scores - self.slope.to(x.device)[:, None, None] * torch.arange(rows, device=x.device)
        hidden = torch.ones(rows, rows, dtype=torch.bool, device=x.device).triu(1)
        weights = self.drop(F.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1))
        return self.out((weights @ v).transpose(1, 2).reshape(batch, rows, width))


batch_size = 2
rows = 32
width = 64
heads = 4
dropout = 0.2


def get_inputs():
    return [torch.randn(batch_size, rows, width)]


def get_init_inputs():
    return [width, heads, dropout]
