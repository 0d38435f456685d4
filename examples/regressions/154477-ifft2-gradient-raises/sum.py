"""The size of the sum of an inverse FFT: a sum's gradient has one element in memory, and strides of zero."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.fft.ifft2(x).sum().abs()


def get_inputs():
    return [torch.randn(6, 7)]


def get_init_inputs():
    return []
