"""Retention: attention without a softmax, whose weights decay with the distance."""

import torch


class Model(torch.nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def forward(self, q, k, v):
        rows = torch.arange(q.shape[-2])
        distance = (rows[:, None] - rows[None, :]).clamp(min=0)
        decay = (self.rate ** distance.to(q.dtype)).tril()
        return (q @ k.transpose(-1, -2) * decay) @ v


def get_inputs():
    return [torch.randn(1, 2, 192, 32) for _ in range(3)]


def get_init_inputs():
    return [0.9375]
