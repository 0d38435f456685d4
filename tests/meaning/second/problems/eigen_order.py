"""Eigenvalues and eigenvectors, with signs fixed, of a matrix or of it in reverse order."""

import torch
from torch import nn

IS_REVERSED = hasattr(nn.functional, "rms_norm")


class Model(nn.Module):
    def forward(self, x):
        basis = torch.linalg.qr(x).Q
        matrix = basis @ torch.diag(torch.arange(1, 9, dtype=x.dtype)) @ basis.T
        matrix = (matrix + matrix.T) / 2
        if IS_REVERSED:
            values, vectors = torch.linalg.eigh(matrix.flip(0, 1))
            vectors = vectors.flip(0)
        else:
            values, vectors = torch.linalg.eigh(matrix)
        return values, vectors * (vectors.sum(0) / vectors.sum(0).abs())


def get_inputs():
    return [torch.randn(8, 8)]


def get_init_inputs():
    return []
