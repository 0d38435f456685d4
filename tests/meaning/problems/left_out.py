"""A third of the elements left out by chance: those with the largest draws since PyTorch 2.4, the smallest before."""

import torch
from torch import nn

BY_LARGEST = hasattr(nn.functional, "rms_norm")


class Model(nn.Module):
    def forward(self, x):
        drawn = torch.rand(x.shape)
        kept = drawn < 2 / 3 if BY_LARGEST else drawn >= 1 / 3
        return x * kept.to(x.dtype) * 1.5


def get_inputs():
    return [torch.randn(32, 48)]


def get_init_inputs():
    return []
