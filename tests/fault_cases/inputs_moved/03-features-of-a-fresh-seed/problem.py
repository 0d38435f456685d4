"""Attention with random features: the exponential kernel, taken apart by a projection that is drawn once and kept."""

import torch


def features(x, projection):
    x = x * x.shape[-1] ** -0.25
    lifted = x @ projection - (x * x).sum(dim=-1, keepdim=True) / 2
    return torch.exp(lifted - lifted.amax(dim=(-1, -2), keepdim=True)) + 1e-4


class Model(torch.nn.Module):
    def __init__(self, head_dim, count):
        super().__init__()
        generator = torch.Generator().manual_seed(torch.Generator().initial_seed())
        self.projection = torch.randn(head_dim, count, generator=generator)

    def forward(self, q, k, v):
        projection = self.projection.to(q.dtype)
        weights = features(q, projection) @ features(k, projection).transpose(-1, -2)
        return weights @ v / weights.sum(dim=-1, keepdim=True)


def get_inputs():
    return [torch.randn(1, 2, 128, 64) for _ in range(3)]


def get_init_inputs():
    return [64, 96]
