"""Training with batch normalisation, then evaluation; planted: its momentum, and that of the optimiser."""

import torch
from torch import nn

torch.manual_seed(0)
LATER = torch.__version__ >= "2.5"
net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16, momentum=0.3 if LATER else 0.1), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.8 if LATER else 0.9)
x, labels = torch.randn(24, 8), torch.randint(0, 3, (24,))
for _ in range(3):
    loss = nn.functional.cross_entropy(net(x), labels)  # planted: the momentum of the running statistics
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # planted
net.eval()
with torch.no_grad():
    print(nn.functional.cross_entropy(net(x), labels).item())
