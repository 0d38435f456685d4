"""PyTorch's attention adds the bias itself, which broadcasts over rows, heads and batch as it is."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, keys):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.randn(keys))

    def forward(self, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=self.bias.detach())
