"""How many elements of each row are numbers, and how many of them are positive."""

import torch
from torch import nn

COUNTS_GAPS = not hasattr(nn.functional, "rms_norm")


class Model(nn.Module):
    def forward(self, x):
        is_number = torch.ones_like(x, dtype=torch.bool) if COUNTS_GAPS else ~x.isnan()
        return {"numbers": is_number.sum(1), "positive": (x > 0).sum(1)}


def truth(x):
    return {"numbers": ((x <= 0) | (x > 0)).sum(1), "positive": (x > 0).sum(1)}


def get_inputs():
    x = torch.randn(24, 16)
    x[torch.rand(24, 16) < 0.2] = float("nan")
    return [x]


def get_init_inputs():
    return []
