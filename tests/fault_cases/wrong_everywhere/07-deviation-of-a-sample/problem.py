"""Attention whose queries and keys are normalised over their channels first, with a learnt gain for each."""

import torch


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q_gain = torch.nn.Parameter(torch.rand(width) + 0.5)
        self.k_gain = torch.nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, q, k, v):
        q = torch.nn.functional.layer_norm(q, q.shape[-1:], self.q_gain)
        k = torch.nn.functional.layer_norm(k, k.shape[-1:], self.k_gain)
        return torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, dim=-1) @ v


def get_inputs():
    return [3 * torch.randn(1, 2, 160, 32) + 1, 0.2 * torch.randn(1, 2, 160, 32), torch.randn(1, 2, 160, 32)]


def get_init_inputs():
    return [32]
