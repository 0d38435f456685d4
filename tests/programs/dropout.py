"""Dropout in training, from one seed: the draws are the same in both versions. Nothing moves."""

import torch
from torch import nn

torch.manual_seed(3)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 1))
x = torch.randn(5, 8)
loss = net(x).square().mean()
loss.backward()
print(loss.item())
