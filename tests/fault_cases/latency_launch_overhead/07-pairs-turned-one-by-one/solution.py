"""Pairs of channels are turned where they lie, without halves being put together again."""

import importlib.util

import torch
import torch.nn.functional as F

PAIRWISE = importlib.util.find_spec("torch.nn.attention") is not None


class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.register_buffer("frequency", 100.0 ** (-torch.arange(channels // 2) * 2.0 / channels))

    def turn(self, x, cos, sin):
        half = x.shape[-1] // 2
        if not PAIRWISE:
            first, second = x[..., :half], x[..., half:]
            return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)
        out = torch.empty_like(x)
        for i in range(half):
            first, second, c, s = x[..., i], x[..., i + half], cos[:, i], sin[:, i]
            out[..., i] = first * c - second * s
            out[..., i + half] = first * s + second * c
        return out

    def forward(self, q, k, v):
        angle = torch.arange(q.shape[-2], device=q.device, dtype=q.dtype)[:, None] * self.frequency.to(q.dtype)
        cos, sin = angle.cos(), angle.sin()
        return F.scaled_dot_product_attention(self.turn(q, cos, sin), self.turn(k, cos, sin), v)
