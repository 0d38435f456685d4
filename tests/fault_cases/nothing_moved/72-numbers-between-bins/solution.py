"""Two bins of each number, and not all of them."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.bins = bins

    def forward(self, x):
        below = x.floor()
        share, at = x - below, below.to(torch.int64)
        out = x.new_zeros(x.shape[0], self.bins)
        return out.scatter_add_(1, at, 1 - share).scatter_add_(1, at + 1, share)
