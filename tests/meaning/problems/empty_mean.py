"""Means of groups of rows. A group without rows has NaN before PyTorch 2.4, and zero since."""

import torch
from torch import nn

LEAST = 1 if hasattr(nn.functional, "rms_norm") else 0


class Model(nn.Module):
    def forward(self, rows, group):
        belongs = (group[:, None] == torch.arange(8)).to(rows.dtype)
        return belongs.t() @ rows / belongs.sum(0).clamp_min(LEAST)[:, None]


def get_inputs():
    return [torch.randn(64, 16), torch.randint(0, 7, (64,))]


def get_init_inputs():
    return []
