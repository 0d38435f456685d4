"""The magnitudes of a signal's frequencies."""

import torch


class Model(torch.nn.Module):
    def forward(self, signal):
        return torch.fft.rfft(signal).abs()


def get_inputs():
    return [torch.randn(32, 512)]


def get_init_inputs():
    return []
