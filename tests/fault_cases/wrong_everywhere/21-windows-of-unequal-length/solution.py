"""One reduction for all windows: the sequence is filled up with zeros, which add nothing."""

import torch
from torch.nn.functional import pad


class ModelNew(torch.nn.Module):
    def __init__(self, window):
        super().__init__()
        self.window = window

    def forward(self, x):
        whole = pad(x, (0, 0, 0, -x.shape[1] % self.window))
        return whole.unflatten(1, (-1, self.window)).mean(dim=2)
