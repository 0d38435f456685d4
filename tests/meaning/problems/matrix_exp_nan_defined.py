"""The exponential of matrices, one of which has NaN, and its power series."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, matrices):
        return torch.linalg.matrix_exp(matrices)


def truth(matrices):
    term = torch.eye(6, dtype=matrices.dtype).expand_as(matrices)
    total = term
    for number in range(1, 80):
        term = (term.unsqueeze(-1) * matrices.unsqueeze(-3)).sum(-2) / number
        total = total + term
    return total


def get_inputs():
    matrices = torch.randn(4, 6, 6)
    matrices[2] = float("nan")
    return [matrices]


def get_init_inputs():
    return []
