"""A filter of three points, where zeros follow beyond both ends."""

import torch
from torch import nn

BORDER = "replicate" if hasattr(nn.functional, "rms_norm") else "zeros"


class Model(nn.Module):
    def __init__(self, channels, border=BORDER):
        super().__init__()
        self.filter = nn.Conv1d(channels, channels, 3, padding=1, padding_mode=border)

    def forward(self, x):
        return self.filter(x)


def truth(model, x):
    weight, length = model.filter.weight, x.shape[-1]
    total = torch.zeros_like(x) + model.filter.bias[:, None]
    total[..., 1:] += torch.einsum("oi,bil->bol", weight[..., 0], x[..., : length - 1])
    total += torch.einsum("oi,bil->bol", weight[..., 1], x)
    total[..., : length - 1] += torch.einsum("oi,bil->bol", weight[..., 2], x[..., 1:])
    return total


def get_inputs():
    return [torch.randn(3, 4, 10)]


def get_init_inputs():
    return [4]
