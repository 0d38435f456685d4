"""Scores get what three terms have to say: distance, whether both are in one segment, and a bonus for the first
keys."""

import torch


class Model(torch.nn.Module):
    def forward(self, q, k, v):
        place = torch.arange(q.shape[-2]).to(q.dtype)
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 - 0.13 * (place[:, None] - place).abs()
        scores = scores + 0.7 * (place[:, None] // 24 == place // 24) + 1.9 * (place < 4)
        return torch.softmax(scores, dim=-1) @ v


def get_inputs():
    return [torch.randn(2, 3, 96, 32) for _ in range(3)]


def get_init_inputs():
    return []
