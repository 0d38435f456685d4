"""The exponential of matrices, one of which has NaN."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, matrices):
        return torch.linalg.matrix_exp(matrices)


def get_inputs():
    matrices = torch.randn(4, 6, 6)
    matrices[2] = float("nan")
    return [matrices]


def get_init_inputs():
    return []
