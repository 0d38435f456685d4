"""Numbers rounded to 8 bits by the largest of each call, and back."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        step = x.abs().max() / 127
        return torch.round(x / step) * step


def get_inputs():
    return [torch.randn(128, 128) * 2.0 ** torch.randint(-3, 4, ()).item()]


def get_init_inputs():
    return []
