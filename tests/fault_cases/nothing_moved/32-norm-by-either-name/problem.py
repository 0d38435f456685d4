"""Attention whose queries and keys are divided by their root mean square first, each channel with a gain of its own."""

import torch

TINY = 1e-6


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = torch.nn.Parameter(1.0 + 0.1 * torch.randn(width))

    def norm(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + TINY) * self.gain

    def forward(self, q, k, v):
        scores = self.norm(q) @ self.norm(k).transpose(-1, -2) / q.shape[-1] ** 0.5
        return torch.softmax(scores, dim=-1) @ v


def get_inputs():
    return [torch.randn(1, 4, 128, 64) for _ in range(3)]


def get_init_inputs():
    return [64]
