"""Hidden units with a slope for negative numbers. The slope that is taken by default changed."""

import torch
from torch import nn

SLOPE = 0.02 if hasattr(nn.functional, "rms_norm") else 0.01


class Leaky(nn.Module):
    def __init__(self, slope=SLOPE):
        super().__init__()
        self.slope = slope

    def forward(self, x):
        return torch.where(x < 0, x * self.slope, x)


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.activation = Leaky()

    def forward(self, x):
        return self.activation(self.layer(x))


def get_inputs():
    return [torch.randn(20, 12)]


def get_init_inputs():
    return [12]
