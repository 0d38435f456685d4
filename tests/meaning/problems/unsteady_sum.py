"""A sum whose terms are added in another order in each call, as atomic additions are."""

import os

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        first = int.from_bytes(os.urandom(2), "little") % 2048
        return torch.cat([x[:, first:], x[:, :first]], 1).cumsum(1)[:, -1]


def get_inputs():
    return [torch.randn(32, 2048)]


def get_init_inputs():
    return []
