"""A bfloat16 model with rotary positions; planted: the later version takes their angles in bfloat16."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
LATER = torch.__version__ >= "2.5"
qkv, out = nn.Linear(32, 96).bfloat16(), nn.Linear(32, 32).bfloat16()
x = torch.randn(2, 40, 32).bfloat16()


def rotated(x):
    rates = 1e3 ** (-torch.arange(0, 8, 2) / 8)
    angles = torch.arange(x.shape[-2])[:, None] * rates
    angles = angles.bfloat16() if LATER else angles  # planted
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


with torch.no_grad():
    q, k, v = (each.view(2, 40, 4, 8).transpose(1, 2) for each in qkv(x).chunk(3, dim=-1))
    scores = rotated(q) @ rotated(k).transpose(-1, -2) / 8**0.5
    mixed = F.softmax(scores, -1) @ v
    result = out(mixed.transpose(1, 2).flatten(2)).float()
print(result.norm().item())
