"""One product; everything behind it works in place on its output."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width, width) * width**-0.5)
        self.bias = torch.nn.Parameter(torch.randn(width))

    @torch.no_grad()
    def forward(self, x):
        out = torch.nn.functional.gelu(x @ self.weight.t())
        return out.add_(self.bias).add_(x)
