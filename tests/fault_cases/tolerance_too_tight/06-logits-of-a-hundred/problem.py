"""Attention by the cosine of queries and keys, times a learnt temperature for each head, of at most a hundred."""

import torch


class Model(torch.nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.temperature = torch.nn.Parameter(torch.full((heads, 1, 1), 4.6))

    def forward(self, q, k, v):
        q, k = (torch.nn.functional.normalize(x, dim=-1) for x in (q, k))
        return torch.softmax(q @ k.transpose(-1, -2) * self.temperature.exp().clamp(max=100), dim=-1) @ v


def get_inputs():
    return [torch.randn(1, 2, 128, 32), torch.randn(1, 2, 128, 32), torch.randn(1, 2, 128, 32)]


def get_init_inputs():
    return [2]
