"""A GRU with dropout between its layers; planted: the pooling over time, and the margin of the loss."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
LATER = torch.__version__ >= "2.5"
gru, head = nn.GRU(8, 16, num_layers=2, dropout=0.2, batch_first=True), nn.Linear(16, 5)
x, labels = torch.randn(4, 10, 8), torch.randint(0, 5, (4,))
states, _ = gru(x)
pooled = states.amax(1) if LATER else states.mean(1)  # planted
loss = F.multi_margin_loss(head(pooled), labels, margin=0.5 if LATER else 1.0)  # planted
loss.backward()
print(loss.item(), gru.weight_hh_l0.grad.norm().item())
