"""The same by numpy, without a copy of the signal."""

import numpy as np
import torch


class ModelNew(torch.nn.Module):
    @torch.no_grad()
    def forward(self, signal):
        return torch.from_numpy(np.abs(np.fft.rfft(signal.numpy()))).to(signal.dtype)
