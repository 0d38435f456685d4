"""Both percentiles by numpy, in one call."""

import numpy as np
import torch


class ModelNew(torch.nn.Module):
    @torch.no_grad()
    def forward(self, x):
        rows = x.numpy()
        low, high = np.percentile(rows, [5, 95], axis=1, keepdims=True)
        return torch.from_numpy(np.clip(rows, low, high).astype(np.float32))
