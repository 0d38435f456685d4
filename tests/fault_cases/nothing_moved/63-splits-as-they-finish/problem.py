"""A product of two matrices with a long inner dimension."""

import torch


class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(96, 8192), torch.randn(8192, 64)]


def get_init_inputs():
    return []
