"""Columns divided by a number that is one and a little more."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x.reshape(x.shape[0], 8, -1).transpose(1, 2) * (1.0 + 1e-5) ** 2000


def get_inputs():
    return [torch.randn(100, 128)]


def get_init_inputs():
    return []
