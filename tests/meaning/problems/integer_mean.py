"""Means of whole numbers, which need not be whole."""

import torch
from torch import nn

IS_TRUE_DIVISION = hasattr(nn.functional, "rms_norm")


class Model(nn.Module):
    def forward(self, counts):
        total = counts.sum(1)
        return total / 7 if IS_TRUE_DIVISION else (total // 7).to(torch.float32)


def truth(counts):
    return counts.sum(1).to(torch.float64) / 7


def get_inputs():
    return [torch.randint(0, 1000, (64, 7))]


def get_init_inputs():
    return []
