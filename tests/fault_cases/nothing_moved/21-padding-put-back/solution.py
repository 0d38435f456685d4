"""Padded rows see nothing. What PyTorch's attention gives for such a row is not promised: it is replaced."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, length):
        super().__init__()
        self.length = length

    def forward(self, q, k, v):
        real = torch.arange(q.shape[-2]) < self.length
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=real[:, None] & real[None, :])
        return torch.where(real[:, None], out, 0.0)
