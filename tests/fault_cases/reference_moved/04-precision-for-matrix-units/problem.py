"""Attention with a temperature for each head, which is learnt."""

import torch


class Model(torch.nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.temperature = torch.nn.Parameter(torch.rand(heads, 1, 1) + 0.5)

    def forward(self, q, k, v):
        scores = q @ k.transpose(-1, -2) / (self.temperature * q.shape[-1] ** 0.5)
        return torch.softmax(scores, dim=-1) @ v


def get_inputs():
    return [torch.randn(1, 2, 128, 64) for _ in range(3)]


def get_init_inputs():
    return [2]
