"""The step that Adam takes from its two moments and a new gradient."""

import torch


class Model(torch.nn.Module):
    def forward(self, gradient, first, second):
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient * gradient
        return -0.1 * first / (second.sqrt() + 1e-8)


def get_inputs():
    return [torch.randn(256, 120), torch.randn(256, 120) * 0.3, torch.rand(256, 120) + 0.5]


def get_init_inputs():
    return []
