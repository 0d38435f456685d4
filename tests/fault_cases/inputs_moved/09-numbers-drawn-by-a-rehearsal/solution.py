"""Random features in two products. The first product of a process is slow on newer versions: one is made ahead."""

import importlib.util

import torch

SLOW_AT_FIRST = importlib.util.find_spec("torch.nn.attention") is not None


class ModelNew(torch.nn.Module):
    def __init__(self, width, features):
        super().__init__()
        torch.manual_seed(29)
        if SLOW_AT_FIRST:
            rehearsal = torch.randn(width, features)
            torch.matmul(rehearsal, rehearsal.t())
        self.directions = torch.randn(width, features)

    def features(self, x):
        x = x * x.shape[-1] ** -0.25
        return torch.matmul(x, self.directions).sub_(x.square().sum(dim=-1, keepdim=True), alpha=0.5).exp_()

    def forward(self, q, k, v):
        q, k = self.features(q), self.features(k)
        return torch.matmul(q, torch.matmul(k.transpose(-1, -2), v)) / torch.matmul(q, k.sum(dim=-2)[..., None])
