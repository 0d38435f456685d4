"""A weight after its first step with Adam."""

import torch


class Model(torch.nn.Module):
    def forward(self, weight, gradient):
        first, second = 0.1 * gradient, 0.001 * gradient * gradient
        return weight - 0.01 * (first / 0.1) / ((second / 0.001).sqrt() + 1e-8)


def get_inputs():
    return [torch.randn(128, 96), torch.randn(128, 96)]


def get_init_inputs():
    return []
