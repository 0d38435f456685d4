"""A product of matrices, in one call or in eight partial products, each of them rounded."""

import torch
from torch import nn

IN_PARTS = hasattr(nn.functional, "rms_norm")


class Model(nn.Module):
    def forward(self, left, right):
        if not IN_PARTS:
            return left @ right
        total = torch.zeros(24, 24, dtype=left.dtype)
        for start in range(0, 256, 32):
            total = total + left[:, start : start + 32] @ right[start : start + 32]
        return total


def get_inputs():
    return [torch.randn(24, 256), torch.randn(256, 24)]


def get_init_inputs():
    return []
