"""Two planted changes of one operator, on two lines: both lines are to be named."""

import torch
from torch.nn import functional as F

torch.manual_seed(0)
LATER = torch.__version__ >= "2.5"
x, w = torch.randn(6, 12), torch.randn(12, 12)
first = F.softplus(x @ w, beta=2.0 if LATER else 1.0)  # planted
second = torch.tanh(first @ w)
third = F.softplus(second @ w, beta=3.0 if LATER else 1.0)  # planted
print(third.sum().item())
