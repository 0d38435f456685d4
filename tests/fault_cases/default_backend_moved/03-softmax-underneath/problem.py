"""Attention whose rows may attend to nothing: one more in the denominator, and a bias that falls with distance."""

import torch


def slopes(heads):
    return 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads)


class Model(torch.nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.heads = heads

    def forward(self, q, k, v):
        rows = torch.arange(q.shape[-2])
        distance = (rows[:, None] - rows[None, :]).abs()
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 - slopes(self.heads)[:, None, None] * distance
        top = scores.amax(dim=-1, keepdim=True).clamp(min=0)
        weights = torch.exp(scores - top)
        return weights / (weights.sum(dim=-1, keepdim=True) + torch.exp(-top)) @ v


def get_inputs():
    return [torch.randn(1, 4, 128, 64) for _ in range(3)]


def get_init_inputs():
    return [4]
