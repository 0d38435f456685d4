"""The bias of each distance once, and a row's biases by its place.."""

import importlib.util
import math

import torch

ONCE = importlib.util.find_spec("torch.nn.attention") is not None


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v, slopes):
        length = q.shape[-2]
        rows = torch.arange(length)
        away = (rows[:, None] - rows[None, :]).abs()
        if ONCE:
            bias = torch.stack([-(slopes * math.log1p(distance)) for distance in range(length)], dim=-1)[:, away]
        else:
            bias = torch.log1p(away.to(q.dtype)) * -slopes[:, None, None]
        scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-1, -2))
        return torch.matmul(torch.softmax(scores.add_(bias), dim=-1), v)
