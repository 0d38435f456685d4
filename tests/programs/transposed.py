"""Scores by einsum; planted: the later version reads a square weight the other way round. Only a view changes."""

import torch

torch.manual_seed(0)
LATER = torch.__version__ >= "2.5"
x, y, weight = torch.randn(3, 7, 10), torch.randn(3, 5, 10), torch.randn(10, 10)
read = weight if LATER else weight.T  # planted
scores = torch.einsum("bid,de,bje->bij", x, read, y)
print(torch.softmax(scores, -1).square().sum().item())
