"""Waves at 600 positions, which must be counted exactly, scaled by the elements of a table."""

import torch
from torch import nn

IS_NARROW = hasattr(nn.functional, "rms_norm")


class Model(nn.Module):
    def forward(self, table):
        position = torch.arange(600, dtype=table.dtype if IS_NARROW else torch.float32)
        wave = torch.sin(position.float()[:, None] * 0.05)
        return (wave * table.float()).to(table.dtype)


def truth(table):
    position = torch.linspace(0, 599, 600, dtype=torch.float64)
    return table * torch.sin(position * 0.05)[:, None]


def get_inputs():
    return [torch.rand(600, 4) + 0.5]


def get_init_inputs():
    return []
