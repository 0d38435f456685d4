"""The later version leaves out that a bias begins at zero: an operator writes in place in one version alone."""

import torch
from torch import nn

torch.manual_seed(0)
LATER = torch.__version__ >= "2.5"
layer = nn.Linear(12, 6)
x = torch.randn(4, 12)
if not LATER:
    nn.init.zeros_(layer.bias)  # planted
print(torch.sigmoid(layer(x)).sum().item())
