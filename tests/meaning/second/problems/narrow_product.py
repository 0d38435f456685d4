"""Products of counts, exact in 64 bits."""

import torch
from torch import nn

DTYPE = torch.int64 if hasattr(nn.functional, "rms_norm") else torch.int32


class Model(nn.Module):
    def forward(self, left, right):
        return (left.to(DTYPE) * right.to(DTYPE)).to(torch.int64)


def truth(left, right):
    return left.to(torch.int64) * right.to(torch.int64)


def get_inputs():
    return [torch.randint(30000, 90000, (16, 16), dtype=torch.int32) for _ in range(2)]


def get_init_inputs():
    return []
