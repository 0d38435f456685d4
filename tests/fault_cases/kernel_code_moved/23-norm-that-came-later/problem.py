"""A root mean square norm of small numbers."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-5)


def get_inputs():
    return [torch.randn(200, 96) * 0.01]


def get_init_inputs():
    return []
