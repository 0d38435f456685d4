"""Two networks trained against each other, with group normalisation and two optimisers; planted: smoothed labels."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
LATER = torch.__version__ >= "2.5"
maker = nn.Sequential(nn.Linear(6, 16), nn.GroupNorm(4, 16), nn.ReLU(), nn.Linear(16, 10), nn.Tanh())
judge = nn.Sequential(nn.Linear(10, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
of_maker = torch.optim.Adam(maker.parameters(), lr=2e-3, betas=(0.5, 0.999))
of_judge = torch.optim.SGD(judge.parameters(), lr=1e-2)
for _ in range(2):
    real, made = torch.randn(8, 10), maker(torch.randn(8, 6))
    ones, zeros = torch.full((8, 1), 0.9 if LATER else 1.0), torch.zeros(8, 1)  # planted
    error = F.binary_cross_entropy_with_logits
    loss = error(judge(real), ones) + error(judge(made.detach()), zeros)
    of_judge.zero_grad()
    loss.backward()
    of_judge.step()
    fooled = error(judge(made), torch.ones(8, 1))
    of_maker.zero_grad()
    fooled.backward()
    of_maker.step()
    print(loss.item(), fooled.item())
