"""Rotary embedding by a complex product. The pairs are neighbours, or the two halves of a head."""

import torch
from torch import nn

IS_HALVES = hasattr(nn.functional, "rms_norm")


class Model(nn.Module):
    def forward(self, x):
        count, width = x.shape[-2:]
        rate = 100.0 ** (-torch.arange(width // 2, dtype=x.dtype) / (width // 2))
        angle = torch.arange(count, dtype=x.dtype)[:, None] * rate
        turn = torch.polar(torch.ones_like(angle), angle)
        if IS_HALVES:
            first, second = x.chunk(2, -1)
            turned = torch.complex(first.contiguous(), second.contiguous()) * turn
            return torch.cat([turned.real, turned.imag], -1)
        turned = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * turn
        return torch.view_as_real(turned).flatten(-2)


def get_inputs():
    return [torch.randn(2, 3, 10, 16)]


def get_init_inputs():
    return []
