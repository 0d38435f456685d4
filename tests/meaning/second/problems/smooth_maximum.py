"""The smooth maximum of rows and its gradient, by PyTorch's function or with the largest taken out."""

import torch
from torch import nn

BY_FORMULA = hasattr(nn.functional, "rms_norm")


class Model(nn.Module):
    def forward(self, x):
        if not BY_FORMULA:
            return torch.logsumexp(x, 1)
        largest = x.detach().max(1, keepdim=True).values
        return (x - largest).exp().sum(1).log() + largest[:, 0]


def get_inputs():
    return [torch.randn(16, 24) * 3]


def get_init_inputs():
    return []
