"""Attention under a mask that is added, whose first row is the lowest float32: all its keys weigh the same."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("query", torch.randn(1, 1, 16, 8))
        self.register_buffer("key", torch.randn(1, 1, 16, 8))

    def forward(self, value, hidden):
        mask = torch.zeros_like(hidden, dtype=value.dtype).masked_fill(hidden, torch.finfo(torch.float32).min)
        return nn.functional.scaled_dot_product_attention(self.query, self.key, value, attn_mask=mask)


def get_inputs():
    hidden = torch.zeros(1, 1, 16, 16, dtype=torch.bool)
    hidden[:, :, 0] = True
    return [torch.randn(1, 1, 16, 8), hidden]


def get_init_inputs():
    return []
