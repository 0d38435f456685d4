"""Directions drawn about a mean direction (the distribution of von Mises)."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, mean):
        return torch.distributions.VonMises(mean, torch.full_like(mean, 3.0)).sample()


def get_inputs():
    return [torch.rand(16, 16) * 2 - 1]


def get_init_inputs():
    return []
