"""PyTorch's own operator where it has one."""

import torch
from torch.nn import functional

OWN = hasattr(functional, "rms_norm")


class ModelNew(torch.nn.Module):
    def __init__(self, width, epsilon):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(width) + 0.5)
        self.epsilon = epsilon

    @torch.no_grad()
    def forward(self, x):
        if OWN:
            return functional.rms_norm(x, self.weight.shape, self.weight)
        wide = x.float()
        square = wide.square().mean(dim=-1, keepdim=True)
        return (wide * torch.rsqrt(square + self.epsilon) * self.weight).to(x.dtype)
