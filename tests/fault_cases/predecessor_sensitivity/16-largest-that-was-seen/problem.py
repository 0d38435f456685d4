"""A signal, so loud that its largest number is one."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x / x.abs().amax()


def get_inputs():
    return [torch.randn(64, 200) * (0.5 + 4 * torch.rand(1))]


def get_init_inputs():
    return []
