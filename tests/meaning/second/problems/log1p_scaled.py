"""Logarithms of one plus tiny complex numbers, scaled by weights."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 1)

    def forward(self, real, imaginary):
        logarithm = torch.log1p(torch.complex(real, imaginary))
        return {"length": logarithm.real * 1e12 * self.scale, "angle": logarithm.imag * self.scale}


def get_inputs():
    return [torch.rand(16, 8) * 1e-12 + 1e-13, torch.randint(1, 1000, (16, 8)) * 1.4e-45]


def get_init_inputs():
    return [8]
