"""Attention of 6 queries over 10 keys, the last query without any key."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, query, key, value, mask):
        return nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def get_inputs():
    mask = torch.ones(6, 10, dtype=torch.bool).tril()
    mask[-1] = False
    return [torch.randn(1, 2, 6, 8), torch.randn(1, 2, 10, 8), torch.randn(1, 2, 10, 8), mask]


def get_init_inputs():
    return []
