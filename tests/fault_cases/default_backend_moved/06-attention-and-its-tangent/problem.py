"""How the output moves when the queries move: the derivative of attention along a direction, written out."""

import torch


class Model(torch.nn.Module):
    def forward(self, q, k, v, bias, direction):
        scale = q.shape[-1] ** -0.5
        weights = torch.softmax(q @ k.transpose(-1, -2) * scale + bias, dim=-1)
        moved = direction @ k.transpose(-1, -2) * scale
        return (weights * (moved - (weights * moved).sum(dim=-1, keepdim=True))) @ v


def get_inputs():
    q, k, v, direction = (torch.randn(1, 2, 96, 32) for _ in range(4))
    return [q, k, v, torch.randn(96, 96), direction]


def get_init_inputs():
    return []
