"""Sums of bytes. They are summed as bytes since PyTorch 2.4, where they overflow."""

import torch
from torch import nn

DTYPE = torch.uint8 if hasattr(nn.functional, "rms_norm") else torch.int64


class Model(nn.Module):
    def forward(self, counts):
        return counts.sum(1, dtype=DTYPE).to(torch.int64)


def truth(counts):
    return counts.to(torch.int64).sum(1)


def get_inputs():
    return [torch.randint(0, 256, (64, 20), dtype=torch.uint8)]


def get_init_inputs():
    return []
