"""The length of a query and the temperature are one factor, and PyTorch's attention does the rest."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.temperature = torch.nn.Parameter(torch.full((heads, 1, 1), 4.6))

    def forward(self, q, k, v):
        factor = self.temperature.detach().exp().clamp(max=100) / q.norm(dim=-1, keepdim=True).clamp(min=1e-12)
        k = torch.nn.functional.normalize(k, dim=-1)
        return torch.nn.functional.scaled_dot_product_attention(q * factor, k, v, scale=1.0)
