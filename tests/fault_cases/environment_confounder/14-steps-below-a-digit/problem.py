"""A weight after a thousand small steps of gradient descent."""

import torch


class Model(torch.nn.Module):
    def forward(self, weight, gradients):
        return weight - 1e-4 * gradients.sum(dim=0)


def get_inputs():
    return [torch.rand(48, 40) + 1, torch.rand(1000, 48, 40) * 5e-4]


def get_init_inputs():
    return []
