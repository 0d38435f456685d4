"""Differential attention: one softmax less most of another, and every row divided by its own root mean square."""

import torch


class Model(torch.nn.Module):
    def __init__(self, lambda_):
        super().__init__()
        self.lambda_ = lambda_

    def forward(self, q, k, v):
        (q1, q2), (k1, k2) = q.chunk(2, dim=-1), k.chunk(2, dim=-1)
        scale = q1.shape[-1] ** -0.5
        first = torch.softmax(q1 @ k1.transpose(-1, -2) * scale, dim=-1)
        second = torch.softmax(q2 @ k2.transpose(-1, -2) * scale, dim=-1)
        out = first @ v - self.lambda_ * (second @ v)
        return out / out.square().mean(dim=-1, keepdim=True).sqrt()


def get_inputs():
    q, k = (0.05 * torch.randn(1, 4, 128, 64) for _ in range(2))
    return [q, k, 4 + torch.randn(1, 4, 128, 64)]


def get_init_inputs():
    return [0.9995]
