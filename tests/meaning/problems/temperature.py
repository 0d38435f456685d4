"""Weights by a softmax, at a temperature that a library chose anew."""

import torch
from torch import nn

TEMPERATURE = 0.9 if hasattr(nn.functional, "rms_norm") else 1.0


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x / TEMPERATURE, 1)


def get_inputs():
    return [torch.randn(32, 64)]


def get_init_inputs():
    return []
