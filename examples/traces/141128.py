"""An adapter whose weights are NaN, and attention behind it: NaN in 2.4, zeros in 2.5.

https://github.com/pytorch/pytorch/issues/141128, which was found by tests of diffusers: they fuse a broken adapter into
a model, and expect that the output shows it. Here: kernel-matrix trace --good 2.1.0 --bad 2.5.0 -- python 141128.py
"""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)


class Attention(nn.Module):
    """Self-attention whose query has a low-rank adapter."""

    def __init__(self, width=32, rank=4):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.down, self.up = nn.Linear(width, rank, bias=False), nn.Linear(rank, width, bias=False)
        self.out = nn.Linear(width, width)

    def fuse(self):
        self.query.weight += self.up.weight @ self.down.weight

    def forward(self, x):
        q, k, v = (of(x).unflatten(-1, (4, 8)).transpose(1, 2) for of in (self.query, self.key, self.value))
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


with torch.no_grad():
    block = Attention()
    block.up.weight.fill_(torch.nan)
    block.fuse()
    result = block(torch.randn(2, 16, 32))
    print("NaN:", torch.isnan(result).sum().item(), "of", result.numel())
