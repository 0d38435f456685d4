"""All systems at once by numpy, in double."""

import numpy as np
import torch


class ModelNew(torch.nn.Module):
    @torch.no_grad()
    def forward(self, covariance, reading, estimate):
        apart = (reading - estimate).double().numpy()
        solved = np.linalg.solve(covariance.double().numpy(), apart)
        return torch.tensor((apart * solved).sum() / len(apart), dtype=reading.dtype)
