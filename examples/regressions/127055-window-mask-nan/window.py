"""Multi-head attention in which a query sees itself and the nine keys before it."""

import math

import torch
from torch import nn

LENGTH, WIDTH = 640, 4


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 1)

    def forward(self, x, hidden):
        mask = torch.zeros_like(hidden, dtype=x.dtype).masked_fill(hidden, -math.inf)
        return self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]


def get_inputs():
    all_pairs = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    return [torch.randn(LENGTH, WIDTH), all_pairs.triu(1) | all_pairs.tril(-10)]


def get_init_inputs():
    return []
