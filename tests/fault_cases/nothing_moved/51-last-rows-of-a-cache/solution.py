"""PyTorch's attention, with its own mask for rows at the end where it has one."""

import torch

try:
    from torch.nn.attention.bias import causal_lower_right as mask
except ImportError:

    def mask(rows, keys):
        return torch.ones(rows, keys, dtype=torch.bool).tril(keys - rows)


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        seen = mask(q.shape[-2], k.shape[-2])
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
