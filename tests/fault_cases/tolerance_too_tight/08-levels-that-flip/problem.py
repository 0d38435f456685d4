"""Attention with weights as eight bits will hold them: between zero and the row's largest, in 255 steps."""

import torch


class Model(torch.nn.Module):
    def forward(self, q, k, v):
        weights = torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, dim=-1)
        step = weights.amax(dim=-1, keepdim=True) / 255
        return torch.round(weights / step) * step @ v


def get_inputs():
    return [torch.randn(1, 8, 256, 64) for _ in range(3)]


def get_init_inputs():
    return []
