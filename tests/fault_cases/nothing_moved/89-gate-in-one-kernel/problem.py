"""A root mean square norm, and a gate."""

import torch


class Model(torch.nn.Module):
    def forward(self, x, gate, weight):
        normed = x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-5)
        return normed * weight * torch.sigmoid(gate)


def get_inputs():
    return [torch.randn(256, 512), torch.randn(256, 512), torch.rand(512) + 0.5]


def get_init_inputs():
    return []
