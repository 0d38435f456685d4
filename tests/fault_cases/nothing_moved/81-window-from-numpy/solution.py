"""The window is numpy's."""

import numpy as np
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.window = torch.from_numpy(np.hanning(512))

    @torch.no_grad()
    def forward(self, x):
        return x * self.window.to(x.dtype)
