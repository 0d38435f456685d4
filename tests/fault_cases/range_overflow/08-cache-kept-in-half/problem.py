"""Attention over activations of a late layer, in which few channels are far larger than others."""

import torch


class Model(torch.nn.Module):
    def forward(self, q, k, v):
        weights = torch.softmax((q @ k.transpose(-1, -2)).float() * q.shape[-1] ** -0.5, dim=-1)
        return (weights @ v.float()).to(q.dtype)


def get_inputs():
    q, k, v = (torch.randn(1, 2, 96, 64) for _ in range(3))
    v[..., ::32] = v[..., ::32].abs() * 3e5 + 1e5
    return [q, k, v]


def get_init_inputs():
    return []
