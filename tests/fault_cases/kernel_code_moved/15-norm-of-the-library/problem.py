"""Root mean square norm with a weight."""

import torch


class Model(torch.nn.Module):
    def __init__(self, width, epsilon):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(width) + 0.5)
        self.epsilon = epsilon

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True) + self.epsilon) * self.weight


def get_inputs():
    return [torch.randn(200, 256) * 0.02]


def get_init_inputs():
    return [256, 1e-5]
