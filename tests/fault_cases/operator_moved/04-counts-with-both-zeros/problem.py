"""The distinct ones of numbers that were rounded, from the smallest on, padded with 99."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        distinct = torch.unique(x)
        return torch.cat([distinct, distinct.new_full((64 - len(distinct),), 99)])


def get_inputs():
    return [(torch.randn(64, 50) * 2).round()]


def get_init_inputs():
    return []
