"""Cosines between the rows of one matrix and those of another."""

import torch
from torch.nn.functional import normalize


class Model(torch.nn.Module):
    def forward(self, x, y):
        return normalize(x, dim=-1) @ normalize(y, dim=-1).transpose(-1, -2)


def get_inputs():
    x = 10 * torch.randn(256, 1024)
    return [x, x + 5 * torch.randn(256, 1024)]


def get_init_inputs():
    return []
