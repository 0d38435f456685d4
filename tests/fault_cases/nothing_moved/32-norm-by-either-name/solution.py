"""PyTorch's own norm where it has one, and its three operators elsewhere; then PyTorch's attention."""

import torch

TINY = 1e-6


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(width))

    def norm(self, x):
        if hasattr(torch.nn.functional, "rms_norm"):
            return torch.nn.functional.rms_norm(x, x.shape[-1:], self.gain, TINY)
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + TINY) * self.gain

    def forward(self, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(self.norm(q), self.norm(k), v)
