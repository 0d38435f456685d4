"""Both percentiles by numpy."""

import numpy as np
import torch


class ModelNew(torch.nn.Module):
    @torch.no_grad()
    def forward(self, x):
        rows = x.numpy()
        low, high = (np.percentile(rows, percent, axis=1, keepdims=True) for percent in (5, 95))
        return torch.from_numpy(np.clip(rows, low, high).astype(np.float32))
