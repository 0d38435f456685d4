"""Sixteen experts for every row, and the sum of what they say."""

import torch


class Model(torch.nn.Module):
    def forward(self, x, weights):
        return sum(torch.tanh(x @ weight) for weight in weights)


def get_inputs():
    return [torch.randn(512, 512), torch.randn(16, 512, 512) * 0.044]


def get_init_inputs():
    return []
