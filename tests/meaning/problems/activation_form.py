"""x times the distribution function of a normal variable."""

import math

import torch
from torch import nn

IS_EXACT = hasattr(nn.functional, "rms_norm")  # a library that changed its formula with PyTorch 2.4


class Model(nn.Module):
    def forward(self, x):
        if IS_EXACT:
            return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def truth(x):
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def get_inputs():
    return [torch.randn(32, 64)]


def get_init_inputs():
    return []
