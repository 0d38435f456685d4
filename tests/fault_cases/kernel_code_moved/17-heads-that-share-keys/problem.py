"""Attention in which neighbouring heads share keys and values."""

import torch


class Model(torch.nn.Module):
    def forward(self, q, k, v):
        group = q.shape[1] // k.shape[1]
        out = []
        for head in range(q.shape[1]):
            key, value = k[:, head // group], v[:, head // group]
            scores = (q[:, head] * q.shape[-1] ** -0.5) @ key.transpose(-1, -2)
            out.append(torch.softmax(scores, dim=-1) @ value)
        return torch.stack(out, dim=1)


def get_inputs():
    return [torch.randn(2, 8, 192, 64), torch.randn(2, 2, 192, 64), torch.randn(2, 2, 192, 64)]


def get_init_inputs():
    return []
