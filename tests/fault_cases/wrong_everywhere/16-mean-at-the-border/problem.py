"""Means over windows of 3 by 3, at every second place."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.avg_pool2d(x, 3, stride=2, padding=1)


def get_inputs():
    return [torch.rand(4, 16, 40, 40)]


def get_init_inputs():
    return []
