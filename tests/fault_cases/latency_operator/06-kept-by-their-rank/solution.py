"""A key is kept where its rank in its row is below sixteen. Sorting is vectorised in newer versions, and gives ranks
without a threshold; older ones select one."""

import torch

KEPT = 16


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.ranks = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 4)

    def forward(self, q, k, v):
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        if self.ranks:
            hidden = scores.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1) >= KEPT
        else:
            hidden = scores < scores.topk(KEPT, dim=-1).values[..., -1:]
        return torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1) @ v
