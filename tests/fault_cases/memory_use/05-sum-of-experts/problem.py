"""Eight experts for every row, and the sum of what they say."""

import torch


class Model(torch.nn.Module):
    def forward(self, x, weights):
        return sum(torch.tanh(x @ weight) for weight in weights)


def get_inputs():
    return [torch.randn(512, 768), torch.randn(8, 768, 768) * 0.036]


def get_init_inputs():
    return []

