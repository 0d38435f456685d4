"""The scale goes into Q, smaller than the scores. Where PyTorch can fuse the cast, the softmax is in double."""

import torch

RELEASE = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
WIDE = torch.float64 if RELEASE >= (2, 3) else torch.float32


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        return torch.softmax(scores, dim=-1, dtype=WIDE).to(v.dtype) @ v
