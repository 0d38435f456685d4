"""Attention over keys that are turned by a phase of their own in every pair of channels, drawn once."""

import torch


class Model(torch.nn.Module):
    def __init__(self, heads, head_dim):
        super().__init__()
        spread = torch.distributions.VonMises(torch.zeros(head_dim // 2), torch.ones(head_dim // 2))
        self.phases = spread.sample((heads, 1))

    def turned(self, k):
        cos, sin = torch.cos(self.phases).to(k.dtype), torch.sin(self.phases).to(k.dtype)
        even, odd = k[..., 0::2], k[..., 1::2]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)

    def forward(self, q, k, v):
        scores = q @ self.turned(k).transpose(-1, -2) / q.shape[-1] ** 0.5
        return torch.softmax(scores, dim=-1) @ v


def get_inputs():
    return [torch.randn(1, 2, 128, 64) for _ in range(3)]


def get_init_inputs():
    return [2, 64]
