"""Attention over a cache of floats with eight bits, to which the last rows' keys and values are added."""

import torch

KIND = torch.float8_e4m3fn


class Model(torch.nn.Module):
    def forward(self, q, k, v):
        keys, values = k.to(KIND).to(q.dtype), v.to(KIND).to(q.dtype)
        weights = torch.softmax(q @ keys.transpose(-1, -2) * q.shape[-1] ** -0.5, dim=-1)
        return weights @ values


def get_inputs():
    return [torch.randn(1, 4, rows, 32) for rows in (16, 128, 128)]


def get_init_inputs():
    return []
