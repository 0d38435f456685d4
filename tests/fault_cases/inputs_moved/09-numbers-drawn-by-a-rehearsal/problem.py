"""Attention by random features: positive ones, drawn once when the model is made."""

import torch


class Model(torch.nn.Module):
    def __init__(self, width, features):
        super().__init__()
        torch.manual_seed(29)
        self.directions = torch.randn(width, features)

    def features(self, x):
        x = x * x.shape[-1] ** -0.25
        return torch.exp(x @ self.directions.to(x) - x.square().sum(dim=-1, keepdim=True) / 2)

    def forward(self, q, k, v):
        q, k = self.features(q), self.features(k)
        return q @ (k.transpose(-1, -2) @ v) / (q @ k.sum(dim=-2)[..., None])


def get_inputs():
    return [torch.randn(1, 4, 128, 32) for _ in range(3)]


def get_init_inputs():
    return [32, 64]
