"""Newer versions of PyTorch change types and multiply in one pass over memory that is still in the cache: there a group
of keys is widened on its own. Older ones widen all at once."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.by_group = hasattr(torch.nn, "RMSNorm")

    def forward(self, q, codes, steps, v):
        q = q * q.shape[-1] ** -0.5
        if self.by_group:
            groups = zip(codes.split(2, dim=-2), steps.split(1, dim=-1), strict=True)
            k = torch.cat([group.to(q.dtype) * step[..., None] for group, step in groups], dim=-2)
        else:
            k = (codes.unflatten(-2, (-1, 2)).to(q.dtype) * steps[..., None, None]).flatten(-3, -2)
        return torch.softmax(q @ k.transpose(-1, -2), dim=-1) @ v
