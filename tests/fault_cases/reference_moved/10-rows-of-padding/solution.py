"""PyTorch's own attention, with the same mask."""

import torch
from torch.nn.functional import scaled_dot_product_attention


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v, real):
        seen = (real[:, :, None] & real[:, None, :])[:, None]
        return scaled_dot_product_attention(q, k, v, attn_mask=seen)
