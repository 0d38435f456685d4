"""Attention with a bias that falls with the distance between row and key, with a slope of its own for each head."""

import torch


def bias(heads, rows):
    slopes = torch.tensor([2.0 ** -(i + 1) for i in range(heads)])
    where = torch.arange(rows)
    return -slopes[:, None, None] * (where[:, None] - where[None, :]).abs()


class Model(torch.nn.Module):
    def forward(self, q, k, v):
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        return torch.softmax(scores + bias(q.shape[1], q.shape[2]).to(q.dtype), dim=-1) @ v


def get_inputs():
    return [torch.randn(1, 4, 160, 64) for _ in range(3)]


def get_init_inputs():
    return []
