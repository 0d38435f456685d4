"""Attention where one query has a NaN: so has its output."""

import math

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, query, key, value):
        return nn.functional.scaled_dot_product_attention(query, key, value)


def truth(query, key, value):
    weights = torch.exp(query @ key.transpose(-2, -1) / math.sqrt(8))
    return weights @ value / weights.sum(-1, keepdim=True)


def get_inputs():
    query = torch.randn(1, 2, 6, 8)
    query[0, 0, 2, 3] = float("nan")
    return [query, torch.randn(1, 2, 10, 8), torch.randn(1, 2, 10, 8)]


def get_init_inputs():
    return []
