"""RMSprop with a schedule of the learning rate; planted: the later version's schedule decays less."""

import torch
from torch import nn

torch.manual_seed(0)
LATER = torch.__version__ >= "2.5"
net = nn.Sequential(nn.Linear(8, 12), nn.Softplus(), nn.Linear(12, 1))
optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9 if LATER else 0.5)  # planted
x, y = torch.randn(16, 8), torch.randn(16, 1)
for _ in range(3):
    loss = nn.functional.huber_loss(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # planted: what it multiplies with
    schedule.step()
    print(loss.item())
