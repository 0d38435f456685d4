"""An LSTM's forward and backward."""

import torch
from torch import nn

torch.manual_seed(0)
lstm, head = nn.LSTM(16, 32, num_layers=2, batch_first=True), nn.Linear(32, 4)
x = torch.randn(3, 12, 16)
loss = head(lstm(x)[0][:, -1]).square().mean()
loss.backward()
print(loss.item(), lstm.weight_ih_l0.grad.norm().item())
