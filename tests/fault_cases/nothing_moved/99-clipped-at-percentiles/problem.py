"""Rows clipped at their first and last twentieth."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        low, high = torch.quantile(x, torch.tensor([0.05, 0.95], dtype=x.dtype), dim=1)[..., None]
        return x.clamp(low, high)


def get_inputs():
    return [torch.randn(64, 500)]


def get_init_inputs():
    return []
