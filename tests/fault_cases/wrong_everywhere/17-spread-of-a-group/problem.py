"""Group norm with a weight and a bias for each channel."""

import torch


class Model(torch.nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = torch.nn.GroupNorm(groups, channels)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(8, 32, 12, 12)]


def get_init_inputs():
    return [8, 32]
