"""The first fifth of a second after a filter of nine taps, of signals that grow louder by twelve powers of e."""

import torch


class Model(torch.nn.Module):
    def forward(self, signal, taps):
        padded = torch.nn.functional.pad(signal, (8, 0))
        return torch.nn.functional.conv1d(padded[:, None], taps.flip(0)[None, None])[:, 0, :100]


def get_inputs():
    return [torch.randn(16, 500) * torch.linspace(0, 12, 500).exp(), torch.randn(9)]


def get_init_inputs():
    return []
