"""GELU, then a transposition: the gradient that GELU is given is transposed, and its input is not."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return nn.functional.gelu(x).t()


def get_inputs():
    return [torch.randn(64, 32)]


def get_init_inputs():
    return []
