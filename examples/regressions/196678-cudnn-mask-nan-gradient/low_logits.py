"""Attention under a causal mask that is given as a tensor, of logits that are all near -120."""

import math

import torch
from torch import nn

LENGTH, WIDTH = 704, 64  # 704 is 5 times 128, and 64


class Model(nn.Module):
    def forward(self, query, key, value, mask):
        first = torch.zeros(WIDTH, dtype=query.dtype, device=query.device)
        first[0] = 1.0
        query = query * 0.1 * (1 - first) + first
        key = key * 0.1 * (1 - first) - 120 * math.sqrt(WIDTH) * first
        return nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def get_inputs():
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()[None, None]
    return [torch.randn(1, 2, LENGTH, WIDTH) for _ in range(3)] + [mask]


def get_init_inputs():
    return []
