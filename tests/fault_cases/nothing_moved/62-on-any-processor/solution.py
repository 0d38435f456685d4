"""The norm in two operators."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, width, outputs):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.layer = torch.nn.Linear(width, outputs)

    @torch.no_grad()
    def forward(self, x):
        variance, mean = torch.var_mean(x, dim=-1, keepdim=True, correction=0)
        x = (x - mean).mul_(torch.rsqrt(variance + self.norm.eps))
        x = torch.addcmul(self.norm.bias, x, self.norm.weight)
        return torch.nn.functional.gelu(torch.addmm(self.layer.bias, x, self.layer.weight.t()))
