"""Roots of positive numbers and zero for negative ones, which have no slope."""

import torch
from torch import nn

IS_SAFE = hasattr(nn.functional, "rms_norm")


class Model(nn.Module):
    def forward(self, x):
        inside = torch.where(x > 0, x, torch.ones_like(x)) if IS_SAFE else x
        return torch.where(x > 0, inside.sqrt(), torch.zeros_like(x))


def get_inputs():
    sign = torch.randint(0, 2, (16, 20)) * 2 - 1
    return [(torch.rand(16, 20) + 0.2) * sign]


def get_init_inputs():
    return []
