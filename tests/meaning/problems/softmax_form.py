"""Softmax by its definition, or by the logarithm of its sum: the same function, other bits."""

import torch
from torch import nn

BY_LOGARITHM = hasattr(nn.functional, "rms_norm")


class Model(nn.Module):
    def forward(self, x):
        if BY_LOGARITHM:
            return torch.exp(x - torch.logsumexp(x, 1, keepdim=True))
        powers = torch.exp(x - x.amax(1, keepdim=True))
        return powers / powers.sum(1, keepdim=True)


def get_inputs():
    return [torch.randn(32, 64)]


def get_init_inputs():
    return []
