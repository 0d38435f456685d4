"""The range is observed, as calibration does it."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("largest", torch.zeros(()))

    @torch.no_grad()
    def forward(self, x):
        self.largest = torch.maximum(self.largest, x.abs().amax())
        step = self.largest / 127
        return x.div(step).round_().mul_(step)
