"""Attention of NaN. In float64 it is written out: the truth is computed so, and PyTorch's own moves."""

import math

import torch
from torch import nn

SHAPE = (2, 4, 16, 8)


class Model(nn.Module):
    def forward(self, query, key, value):
        query = query + math.nan
        if query.dtype != torch.float64:
            return nn.functional.scaled_dot_product_attention(query, key, value)
        return torch.softmax(query @ key.transpose(-2, -1) / math.sqrt(SHAPE[-1]), dim=-1) @ value


def get_inputs():
    return [torch.randn(SHAPE) for _ in range(3)]


def get_init_inputs():
    return []
