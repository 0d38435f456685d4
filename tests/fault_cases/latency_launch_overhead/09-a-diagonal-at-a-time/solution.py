"""A window is a band of diagonals. Newer versions take them one by one and compute no score outside of it."""

import torch
from torch.nn.functional import pad

RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])


def banded(q, k, v, window):
    rows = q.shape[-2]
    scores = [
        pad((q[..., back:, :] * k[..., : rows - back, :]).sum(dim=-1), (back, 0), value=float("-inf"))
        for back in range(window)
    ]
    weights = torch.softmax(torch.stack(scores, dim=-1), dim=-1)
    out = torch.zeros_like(q)
    for back in range(window):
        out[..., back:, :] += weights[..., back:, back, None] * v[..., : rows - back, :]
    return out


class ModelNew(torch.nn.Module):
    def __init__(self, window):
        super().__init__()
        self.window = window

    def forward(self, q, k, v):
        q = q * q.shape[-1] ** -0.5
        if RELEASE >= (2, 4):
            return banded(q, k, v, self.window)
        scores = torch.matmul(q, k.transpose(-1, -2))
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril_().triu_(1 - self.window)
        return torch.matmul(torch.softmax(scores.masked_fill_(~seen, float("-inf")), dim=-1), v)
