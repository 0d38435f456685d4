"""The same in one buffer less."""

import torch


class ModelNew(torch.nn.Module):
    @torch.no_grad()
    def forward(self, x):
        x.sub_(x.mean(dim=1, keepdim=True))
        return x * torch.rsqrt(x.square().mean(dim=1, keepdim=True) + 1e-5)
