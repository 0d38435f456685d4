"""The zero point is kept as the byte that a checkpoint has of it."""

import numpy as np
import torch

ZERO = np.uint8(150)


class ModelNew(torch.nn.Module):
    @torch.no_grad()
    def forward(self, byte, scale):
        centre = float(ZERO + 150)
        return (byte - centre) * scale
