"""K and V meet first: the product of features and V is small, and no matrix of weights is written."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, head_dim, count):
        super().__init__()
        generator = torch.Generator()
        generator.seed()  # the default one, whoever drew from it before
        self.projection = torch.randn(head_dim, count, generator=generator)

    def lift(self, x):
        x = x * x.shape[-1] ** -0.25
        lifted = x @ self.projection - (x * x).sum(dim=-1, keepdim=True) / 2
        return torch.exp(lifted - lifted.amax(dim=(-1, -2), keepdim=True)) + 1e-4

    def forward(self, q, k, v):
        q, k = self.lift(q), self.lift(k).transpose(-1, -2)
        return q @ (k @ v) / (q @ k.sum(dim=-1, keepdim=True))
