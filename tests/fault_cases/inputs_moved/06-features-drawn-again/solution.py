"""The same, from the right: keys and values meet first, and no matrix of weights is made."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, width, count):
        super().__init__()
        self.shape, self.generator = (count, width), torch.Generator().manual_seed(7)

    def forward(self, q, k, v):
        directions = torch.randn(self.shape, generator=self.generator).to(q.dtype)
        a, b = (self.features(x * x.shape[-1] ** -0.25, directions) for x in (q, k))
        total = a @ b.sum(dim=-2, keepdim=True).transpose(-1, -2)
        return a @ (b.transpose(-1, -2) @ v) / total

    def features(self, x, directions):
        return torch.exp(x @ directions.transpose(-1, -2) - x.square().sum(dim=-1, keepdim=True) / 2)
