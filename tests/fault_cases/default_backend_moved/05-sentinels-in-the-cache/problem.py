"""A step of decoding with a cache of fixed size: the new rows see the keys that are in it, and nothing behind them."""

import torch


class Model(torch.nn.Module):
    def forward(self, q, k, v):
        return torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, dim=-1) @ v


def get_inputs():
    return [torch.randn(1, 4, 64, 64), torch.randn(1, 4, 150, 64), torch.randn(1, 4, 150, 64)]


def get_init_inputs():
    return []
