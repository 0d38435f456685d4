"""Attention with a residual: what a row sees is added to what it is."""

import torch


class Model(torch.nn.Module):
    def forward(self, x, q, k, v):
        return x + torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, dim=-1) @ v


def get_inputs():
    return [torch.randn(1, 4, 128, 64) for _ in range(4)]


def get_init_inputs():
    return []
