"""Mean and variance in one call."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = torch.nn.GroupNorm(groups, channels)

    @torch.no_grad()
    def forward(self, x):
        grouped = x.view(x.shape[0], self.norm.num_groups, -1)
        variance, mean = torch.var_mean(grouped, dim=-1, keepdim=True)
        y = ((grouped - mean) * torch.rsqrt(variance + self.norm.eps)).view_as(x)
        return y * self.norm.weight[:, None, None] + self.norm.bias[:, None, None]
