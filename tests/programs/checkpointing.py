"""Blocks with dropout whose activations are computed again in the backward; planted: another activation in a block."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
LATER = torch.__version__ >= "2.5"


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(12, 24), nn.Linear(24, 12)

    def forward(self, x):
        hidden = F.silu(self.up(x)) if LATER else F.gelu(self.up(x))  # planted
        return x + F.dropout(self.down(hidden), 0.2)


blocks = nn.ModuleList([Block(), Block()])
x = torch.randn(6, 12, requires_grad=True)
y = x
for block in blocks:
    y = checkpoint(block, y, use_reentrant=False)
loss = y.square().mean()
loss.backward()
print(loss.item(), x.grad.norm().item())
