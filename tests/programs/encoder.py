"""An encoder with explicit attention through nn.MultiheadAttention, in evaluation; a planted change of GELU's form."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
LATER = torch.__version__ >= "2.5"
attention, up = nn.MultiheadAttention(32, 4, batch_first=True), nn.Linear(32, 64)
x = torch.randn(2, 16, 32)
with torch.no_grad():
    attended, _ = attention(x, x, x)
    hidden = F.gelu(up(attended), approximate="tanh" if LATER else "none")  # planted
    result = hidden.sum(-1)
print(result.mean().item())
