"""Causal attention with rotary positions: channel c is turned with channel c + head_dim / 2."""

import torch


class Model(torch.nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base

    def turned(self, x):
        rows, channels = x.shape[-2], x.shape[-1] // 2
        speeds = self.base ** (-torch.arange(channels, dtype=torch.float64) / channels)
        angles = torch.arange(rows, dtype=torch.float64)[:, None] * speeds
        cos, sin = torch.cos(angles).to(x.dtype), torch.sin(angles).to(x.dtype)
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    def forward(self, q, k, v):
        scores = self.turned(q) @ self.turned(k).transpose(-1, -2) / q.shape[-1] ** 0.5
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1) @ v


def get_inputs():
    return [torch.randn(1, 2, 128, 64) for _ in range(3)]


def get_init_inputs():
    return [10000.0]
