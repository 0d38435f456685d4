"""Causal attention whose Q and K are turned by their places."""

import torch


class Model(torch.nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base

    def turned(self, x):
        half = x.shape[-1] // 2
        speed = self.base ** (-torch.arange(half, dtype=torch.float64, device=x.device) / half)
        angle = torch.arange(x.shape[-2], dtype=torch.float64, device=x.device)[:, None] * speed
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def forward(self, q, k, v):
        scores = self.turned(q) @ self.turned(k).transpose(-1, -2) * q.shape[-1] ** -0.5
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        return torch.softmax(scores.masked_fill(future, -torch.inf), dim=-1) @ v


def get_inputs():
    return [torch.randn(1, 4, 128, 64) for _ in range(3)]


def get_init_inputs():
    return [10000.0]
