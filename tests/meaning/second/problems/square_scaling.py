"""Each row of a square matrix scaled by its own factor, in place on a copy."""

import torch
from torch import nn

AXIS = 1 if hasattr(nn.functional, "rms_norm") else 0


class Model(nn.Module):
    def forward(self, matrix, factor):
        scaled = matrix.clone()
        scaled.mul_(factor.unsqueeze(AXIS))
        return scaled


def truth(matrix, factor):
    return torch.diag(factor) @ matrix


def get_inputs():
    return [torch.randn(24, 24), torch.rand(24) + 0.5]


def get_init_inputs():
    return []
