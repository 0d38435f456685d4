"""Both gains and the scale are one factor, which goes to Q alone; mean and variance come from one pass."""

import torch


def normalised(x):
    variance, mean = torch.var_mean(x, dim=-1, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + 1e-5)


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q_gain = torch.nn.Parameter(torch.rand(width) + 0.5)
        self.k_gain = torch.nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, q, k, v):
        gain = (self.q_gain * self.k_gain).detach()
        return torch.nn.functional.scaled_dot_product_attention(normalised(q) * gain, normalised(k), v)
