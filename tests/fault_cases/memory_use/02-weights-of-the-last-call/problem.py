"""Attention of heads of 64 channels, with the weights written out."""

import torch


class Model(torch.nn.Module):
    def forward(self, q, k, v):
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        return torch.softmax(scores, dim=-1) @ v


def get_inputs():
    return [torch.randn(1, 4, 512, 64) for _ in range(3)]


def get_init_inputs():
    return []
