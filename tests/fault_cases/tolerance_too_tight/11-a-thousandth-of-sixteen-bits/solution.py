"""In float32, and rounded once at the end."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        left, right = x.float().chunk(2, dim=-1)
        return torch.nn.functional.silu(right).mul_(left).to(x.dtype)
