"""Instance norm: each channel of each image has mean 0 and variance 1."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.instance_norm(x, eps=1e-5)


def get_inputs():
    return [torch.randn(40, 8, 128, 128) * 3 + 1]


def get_init_inputs():
    return []
