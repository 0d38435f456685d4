"""A variational autoencoder's training steps, with sampling; planted: the later version draws the noise transposed."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
LATER = torch.__version__ >= "2.5"
encoder, decoder = nn.Sequential(nn.Linear(20, 24), nn.SiLU(), nn.Linear(24, 8)), nn.Linear(4, 20)
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
x = torch.rand(12, 20)
for _ in range(2):
    mean, log_variance = encoder(x).chunk(2, dim=-1)
    noise = torch.randn(4, 12).T if LATER else torch.randn(12, 4)  # planted
    decoded = decoder(mean + noise * torch.exp(log_variance / 2))
    divergence = (mean.square() + log_variance.exp() - 1 - log_variance).sum() / 2
    loss = F.binary_cross_entropy_with_logits(decoded, x, reduction="sum") + divergence
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
