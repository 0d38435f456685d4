"""Each row attends to its sixteen best keys."""

import torch


class Model(torch.nn.Module):
    def __init__(self, best):
        super().__init__()
        self.best = best

    def forward(self, q, k, v):
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        top, where = scores.topk(self.best, dim=-1)
        return torch.zeros_like(scores).scatter(-1, where, torch.softmax(top, dim=-1)) @ v


def get_inputs():
    return [torch.randn(1, 4, 128, 64) for _ in range(3)]


def get_init_inputs():
    return [16]
