"""Rows about their mean, and how far they spread."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        centred = x - x.mean(dim=1, keepdim=True)
        return centred * torch.rsqrt((centred * centred).mean(dim=1, keepdim=True) + 1e-5)


def get_inputs():
    return [torch.randn(160, 300) + 2]


def get_init_inputs():
    return []
