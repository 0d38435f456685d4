"""Scores of one head stay in the cache, those of all heads together do not. Operators are light enough for a head at a
time since PyTorch lets users write their own; before that all heads go at once."""

import torch


def attention(q, k, v):
    return torch.softmax(q @ k.transpose(-1, -2), dim=-1) @ v


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.apart = hasattr(torch.library, "custom_op")

    def forward(self, q, k, v):
        q = q * q.shape[-1] ** -0.5
        if not self.apart:
            return attention(q, k, v)
        heads = zip(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), strict=True)
        return torch.stack([attention(*head) for head in heads]).view_as(q)
