"""Numbers rounded to halves. Its gradient is a convention, not the derivative, and the convention changed."""

import torch
from torch import nn

IS_CLIPPED = hasattr(nn.functional, "rms_norm")


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.round(x * 2) / 2

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() < 1) if IS_CLIPPED else gradient


class Model(nn.Module):
    def forward(self, x):
        return Rounded.apply(x)


def get_inputs():
    return [torch.randn(16, 32)]


def get_init_inputs():
    return []
