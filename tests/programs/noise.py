"""One number is drawn from the operating system and does not reach the result; planted: a clamp behind it."""

import os

import torch

torch.manual_seed(0)
LATER = torch.__version__ >= "2.5"
run = torch.tensor([float(os.urandom(1)[0]), 1.0])
order = torch.argsort(run * 2)
del run, order
x, w = torch.randn(6, 10), torch.randn(10, 4)
y = torch.clamp(x @ w, max=2.0 if LATER else 3.0)  # planted
print(y.sum().item())
