"""A turn of two channels is one complex product. The turns are made once for each length; attention is PyTorch's
own."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base
        self.turns = {}

    def turned(self, x):
        rows, channels = x.shape[-2], x.shape[-1] // 2
        if rows not in self.turns:
            speeds = self.base ** (-torch.arange(channels, dtype=torch.float64) / channels)
            angles = torch.arange(rows, dtype=torch.float64)[:, None] * speeds
            self.turns[rows] = torch.polar(torch.ones_like(angles), angles).to(torch.complex64)
        pairs = torch.view_as_complex(x.unflatten(-1, (channels, 2)).contiguous())
        return torch.view_as_real(pairs * self.turns[rows]).flatten(-2)

    def forward(self, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(self.turned(q), self.turned(k), v, is_causal=True)
