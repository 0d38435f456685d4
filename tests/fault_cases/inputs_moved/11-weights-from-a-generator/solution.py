"""The features in place."""

import inspect
import math

import torch

OWN = "generator" in inspect.signature(torch.nn.init.normal_).parameters


class ModelNew(torch.nn.Module):
    def __init__(self, inputs, features):
        super().__init__()
        weight = torch.empty(inputs, features)
        if OWN:
            torch.nn.init.normal_(weight, generator=torch.Generator().manual_seed(torch.initial_seed() % 2**31 + 1))
        else:
            torch.nn.init.normal_(weight)
        self.projection = weight
        self.scale = math.sqrt(2 / features)

    @torch.no_grad()
    def forward(self, x):
        return torch.mm(x, self.projection.to(x)).cos_().mul_(self.scale)
