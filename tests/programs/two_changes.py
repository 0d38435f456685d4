"""Two planted changes, a constant and a mask's value, that both reach the result."""

import torch
from torch.nn import functional as F

torch.manual_seed(0)
LATER = torch.__version__ >= "2.5"
x, w = torch.randn(6, 12), torch.randn(12, 12)
hidden = F.leaky_relu(x @ w, 0.02 if LATER else 0.01)  # planted
scores = hidden @ w
masked = scores.masked_fill(scores > 2, -1.5 if LATER else -1.0)  # planted
print(masked.mean().item())
