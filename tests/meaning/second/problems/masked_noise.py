"""Noise on chosen elements: drawn for all of them, or since PyTorch 2.4 for the chosen ones."""

import torch
from torch import nn

IS_FEW = hasattr(nn.functional, "rms_norm")


class Model(nn.Module):
    def forward(self, x, is_chosen):
        noisy = x.clone()
        if IS_FEW:
            noisy[is_chosen] += torch.randn(int(is_chosen.sum()), dtype=x.dtype)
        else:
            noisy[is_chosen] += torch.randn(x.shape, dtype=x.dtype)[is_chosen]
        return noisy, x.sum(1)


def get_inputs():
    return [torch.randn(24, 32), torch.rand(24, 32) < 0.5]


def get_init_inputs():
    return []
