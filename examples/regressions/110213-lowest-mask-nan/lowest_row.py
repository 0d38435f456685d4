"""Attention under a mask that is added, whose first row is the lowest float32: all its keys weigh the same.

The mask is made from a boolean, because a gradient is taken of every floating-point input.
"""

import torch
from torch import nn

LENGTH, WIDTH = 16, 8


class Model(nn.Module):
    def forward(self, query, key, value, hidden):
        mask = torch.ones_like(hidden, dtype=query.dtype).masked_fill(hidden, torch.finfo(torch.float32).min)
        return nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def get_inputs():
    hidden = torch.zeros(1, 1, LENGTH, LENGTH, dtype=torch.bool)
    hidden[:, :, 0] = True
    return [torch.randn(1, 1, LENGTH, WIDTH) for _ in range(3)] + [hidden]


def get_init_inputs():
    return []
