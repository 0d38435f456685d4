"""A ramp of whole numbers. At zero it has no derivative, and the convention changed."""

import torch
from torch import nn

IS_CLAMP = hasattr(nn.functional, "rms_norm")


class Model(nn.Module):
    def forward(self, x):
        return x.clamp_min(0) if IS_CLAMP else torch.relu(x)


def get_inputs():
    return [torch.randint(-2, 3, (16, 20)).float()]


def get_init_inputs():
    return []
