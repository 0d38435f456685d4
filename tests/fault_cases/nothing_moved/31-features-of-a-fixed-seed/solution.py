"""Keys and values are summed up first, a matrix of features by channels: no row is compared with any key."""

import torch

FEATURES, SEED = 256, 20_231


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        drawn = torch.randn(FEATURES, width, generator=torch.Generator().manual_seed(SEED))
        self.register_buffer("directions", drawn, persistent=False)

    def mapped(self, x):
        x = x * x.shape[-1] ** -0.25
        return torch.exp(x @ self.directions.T - x.square().sum(-1, keepdim=True) / 2)

    def forward(self, q, k, v):
        rows, keys = self.mapped(q), self.mapped(k)
        sums = keys.sum(-2).unsqueeze(-1)
        return (rows @ (keys.transpose(-1, -2) @ v)) / (rows @ sums)
