"""Means of rows with gaps. A library began to leave the gaps out."""

import torch
from torch import nn

LEAVES_OUT = hasattr(nn.functional, "rms_norm")


class Model(nn.Module):
    def forward(self, x):
        return x.nanmean(1) if LEAVES_OUT else x.mean(1)


def get_inputs():
    x = torch.randn(24, 16)
    x[::3, 5] = float("nan")
    return [x]


def get_init_inputs():
    return []
