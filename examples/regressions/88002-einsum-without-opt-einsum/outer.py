"""A bilinear form of products of two matrices, in one expression."""

import torch


class Model(torch.nn.Module):
    def forward(self, a, b, c, d):
        return torch.einsum("ia,jb,ab,ij->", a, b, c, d)


def get_inputs():
    return [torch.randn(60, 50), torch.randn(60, 50), torch.randn(50, 50), torch.randn(60, 60)]


def get_init_inputs():
    return []
