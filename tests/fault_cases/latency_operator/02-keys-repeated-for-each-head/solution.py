"""Rows of all heads that share a key become one matrix. Releases that know grouped queries themselves want a head of
K and V for each of Q, and get it."""

import torch

RELEASE = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        share = q.shape[1] // k.shape[1]
        if RELEASE >= (2, 4):
            rows, k, v = q, k.repeat_interleave(share, dim=1), v.repeat_interleave(share, dim=1)
        else:
            rows = q.unflatten(1, (k.shape[1], share)).flatten(2, 3)
        weights = torch.softmax(rows * q.shape[-1] ** -0.5 @ k.transpose(-1, -2), dim=-1)
        return (weights @ v).view_as(q)
