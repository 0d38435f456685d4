"""Sparse attention: each row keeps the sixteen keys with its highest scores."""

import torch

KEPT = 16


class Model(torch.nn.Module):
    def forward(self, q, k, v):
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        least = scores.topk(KEPT, dim=-1).values[..., -1:]
        return torch.softmax(scores.masked_fill(scores < least, float("-inf")), dim=-1) @ v


def get_inputs():
    return [torch.randn(1, 2, 512, 32) for _ in range(3)]


def get_init_inputs():
    return []
