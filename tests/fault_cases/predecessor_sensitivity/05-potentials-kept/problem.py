"""Sinkhorn attention: weights whose rows and columns both sum to one, by scaling them in turn."""

import torch

STEPS = 40


class Model(torch.nn.Module):
    def forward(self, q, k, v):
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        columns = torch.zeros_like(scores[..., :1, :])
        for _ in range(STEPS):
            rows = -torch.logsumexp(scores + columns, dim=-1, keepdim=True)
            columns = -torch.logsumexp(scores + rows, dim=-2, keepdim=True)
        return torch.exp(scores + rows + columns) @ v


def get_inputs():
    return [torch.randn(1, 2, 128, 64) for _ in range(3)]


def get_init_inputs():
    return []
