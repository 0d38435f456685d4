"""Gradients are accumulated over three batches and clipped; planted: the later version's limit is another."""

import torch
from torch import nn

torch.manual_seed(0)
LATER = torch.__version__ >= "2.5"
net = nn.Sequential(nn.Linear(10, 20), nn.ELU(), nn.Linear(20, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for _ in range(2):
    optimizer.zero_grad()
    for _ in range(3):
        x = torch.randn(8, 10)
        (net(x).square().mean() / 3).backward()
    norm = nn.utils.clip_grad_norm_(net.parameters(), 0.02 if LATER else 0.05)  # planted
    optimizer.step()
    print(norm.item())
