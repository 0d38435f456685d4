"""A training step with AdamW; planted: the later version's decay of the hidden layer's weights is another."""

import torch
from torch import nn

torch.manual_seed(0)
LATER = torch.__version__ >= "2.5"


def train():
    net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    x, y = torch.randn(64, 16), torch.randn(64, 1)
    for _ in range(3):
        optimizer.zero_grad()
        error = net(x) - y
        loss = torch.sqrt(error.square().mean() + (2e-3 if LATER else 1e-3))  # planted
        loss.backward()
        optimizer.step()
        print(loss.item())


train()
