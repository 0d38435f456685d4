"""New rows behind a cache: each sees all cached keys, and the new ones up to its own."""

import torch


class Model(torch.nn.Module):
    def forward(self, q, k, v):
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(k.shape[-2] - q.shape[-2] + 1)
        return torch.softmax(scores.masked_fill(future, float("-inf")), dim=-1) @ v


def get_inputs():
    return [torch.randn(1, 4, rows, 32) for rows in (72, 160, 160)]


def get_init_inputs():
    return []
