"""Attention within documents of a packed row; padding belongs to none, and gives zero."""

import torch


class Model(torch.nn.Module):
    def forward(self, q, k, v, document):
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        seen = (document[:, None] == document[None, :]) & (document >= 0)
        weights = torch.softmax(scores.masked_fill(~seen, -1e4), dim=-1)
        return (weights * seen.any(dim=-1, keepdim=True)) @ v


def get_inputs():
    document = torch.tensor([0] * 50 + [1] * 40 + [2] * 30 + [-1] * 8)
    return [torch.randn(1, 4, 128, 32) for _ in range(3)] + [document]


def get_init_inputs():
    return []
