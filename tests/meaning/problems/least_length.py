"""Rows over their length, which counts as a least one. The least length that is taken by default changed."""

import torch
from torch import nn

LEAST = 2.0 if hasattr(nn.functional, "rms_norm") else 1e-12


def normalised(x, least=LEAST):
    return x / (x * x).sum(1, keepdim=True).sqrt().clamp_min(least)


class Model(nn.Module):
    def forward(self, x):
        return normalised(x)


def get_inputs():
    return [torch.randn(64, 4)]


def get_init_inputs():
    return []
