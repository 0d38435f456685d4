"""The mean distance of each point from all others."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        square = (x * x).sum(dim=-1)
        apart = square[:, None] + square[None, :] - 2 * (x @ x.t())
        return apart.clamp(min=0).mean(dim=-1)


def get_inputs():
    return [torch.randn(512, 32)]


def get_init_inputs():
    return []
