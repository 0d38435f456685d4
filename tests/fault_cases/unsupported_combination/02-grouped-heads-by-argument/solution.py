"""PyTorch's attention repeats the heads of K and V itself, and keeps no copies of them."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
