"""The row of the table is the rank of a key's level among those that occur, which is what unique gives beside them."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, levels):
        super().__init__()
        self.bias = torch.nn.Parameter(2 * torch.randn(levels))

    def forward(self, q, k, v, ages):
        _, rank = torch.unique(torch.round(ages), return_inverse=True)
        scores = (q @ k.transpose(-1, -2)).float() / q.shape[-1] ** 0.5 + self.bias.detach().float()[rank]
        return torch.softmax(scores, dim=-1).to(v.dtype) @ v
