"""The inverse of a row's length at once, for one product instead of a root and a division."""

import torch


def unit(x):
    return x * torch.rsqrt((x * x).sum(dim=-1, keepdim=True).clamp_min(1e-6))


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        return unit(x) @ unit(y).transpose(-1, -2)
