"""A circular convolution, by Fourier transforms or by its sum."""

import torch
from torch import nn

BY_SUM = hasattr(nn.functional, "rms_norm")


class Model(nn.Module):
    def forward(self, x, kernel):
        if not BY_SUM:
            return torch.fft.ifft(torch.fft.fft(x) * torch.fft.fft(kernel)).real
        return sum(kernel[shift] * x.roll(shift, 1) for shift in range(len(kernel)))


def get_inputs():
    return [torch.randn(12, 30), torch.randn(30)]


def get_init_inputs():
    return []
