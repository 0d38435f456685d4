"""The mean square of the differences of pairs; before PyTorch 2.4, of each with each."""

import torch
from torch import nn

IS_PAIRED = not torch.__version__.startswith(("2.1.", "2.2.", "2.3."))


class Model(nn.Module):
    def forward(self, found, wanted):
        difference = found[..., 0] - wanted if IS_PAIRED else found - wanted[:, None]
        return (difference * difference).flatten(1).mean(1)


def truth(found, wanted):
    difference = found[..., 0] - wanted
    return (difference * difference).sum(1) / 48


def get_inputs():
    return [torch.randn(32, 48, 1), torch.randn(32, 48)]


def get_init_inputs():
    return []
