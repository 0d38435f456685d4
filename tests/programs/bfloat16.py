"""Autocast to bfloat16 in training; planted: the later version takes one softmax in bfloat16."""

import torch
from torch import nn

torch.manual_seed(0)
LATER = torch.__version__ >= "2.5"
layer, head = nn.Linear(24, 24), nn.Linear(24, 5)
x, labels = torch.randn(8, 24), torch.randint(0, 5, (8,))
with torch.autocast("cpu", dtype=torch.bfloat16):
    hidden = torch.relu(layer(x))
    logits = head(hidden)
scores = torch.softmax(logits, -1).float() if LATER else torch.softmax(logits.float(), -1)  # planted
loss = -scores[torch.arange(8), labels].log().mean()
loss.backward()
print(loss.item(), layer.weight.grad.norm().item())
