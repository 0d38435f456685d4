"""Attention under a mask that is added, whose first row is the lowest float32: all its keys weigh the same."""

import torch
from torch import nn

LENGTH, WIDTH = 16, 8


class Model(nn.Module):
    def forward(self, query, key, value, mask):
        return nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def get_inputs():
    mask = torch.ones(1, 1, LENGTH, LENGTH)
    mask[:, :, 0] = torch.finfo(torch.float32).min
    return [torch.randn(1, 1, LENGTH, WIDTH) for _ in range(3)] + [mask]


def get_init_inputs():
    return []
