"""SGD with momentum; the later version updates the parameters as a list, in the same arithmetic: nothing moves."""

import torch
from torch import nn

torch.manual_seed(0)
LATER = torch.__version__ >= "2.5"
net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-2, foreach=LATER)
x = torch.randn(6, 8)
for _ in range(3):
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
