"""Products and sums of bfloat16 numbers, rounded once or after each operation."""

import torch
from torch import nn

IS_FUSED = hasattr(nn.functional, "rms_norm")


class Model(nn.Module):
    def forward(self, x, y, z):
        if IS_FUSED:
            return (x.float() * y.float() + z.float()).to(x.dtype)
        return x * y + z


def get_inputs():
    return [torch.rand(24, 16) + 0.5 for _ in range(3)]


def get_init_inputs():
    return []
