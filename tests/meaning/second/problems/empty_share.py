"""Shares of the kept elements in each row. A row may keep none, and a library chose what it gets."""

import torch
from torch import nn

IS_EVEN = hasattr(nn.functional, "rms_norm")


class Model(nn.Module):
    def forward(self, x, is_kept):
        kept = x * is_kept
        total = kept.sum(1, keepdim=True)
        shares = kept / torch.where(total > 0, total, torch.ones_like(total))
        return torch.where(total > 0, shares, torch.full_like(x, 1 / x.shape[1])) if IS_EVEN else shares


def get_inputs():
    is_kept = torch.rand(20, 10) < 0.5
    is_kept[::5] = False
    return [torch.rand(20, 10) + 0.1, is_kept]


def get_init_inputs():
    return []
