"""A layer's normalisation, by PyTorch's function or by its formula, with weights."""

import torch
from torch import nn

BY_FORMULA = hasattr(nn.functional, "rms_norm")


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.norm.weight)
        nn.init.normal_(self.norm.bias)

    def forward(self, x):
        if not BY_FORMULA:
            return self.norm(x)
        centred = x - x.mean(-1, keepdim=True)
        scale = ((centred * centred).mean(-1, keepdim=True) + self.norm.eps).rsqrt()
        return centred * scale * self.norm.weight + self.norm.bias


def get_inputs():
    return [torch.randn(20, 48) * 3 + 2]


def get_init_inputs():
    return [48]
