"""The logarithm of a sum of exponentials, row by row and of no elements at all, where the sum is zero."""

import torch
from torch import nn

IS_ZERO = hasattr(nn.functional, "rms_norm")


def logsumexp(x):
    if not x.shape[1] and IS_ZERO:
        return torch.zeros(x.shape[0], dtype=x.dtype)
    return torch.logsumexp(x, 1)


class Model(nn.Module):
    def forward(self, x):
        return torch.cat([logsumexp(x), logsumexp(x[:, :0])])


def truth(x):
    return torch.cat([x.exp().sum(1), torch.zeros(len(x), dtype=x.dtype)]).log()


def get_inputs():
    return [torch.randn(32, 16)]


def get_init_inputs():
    return []
