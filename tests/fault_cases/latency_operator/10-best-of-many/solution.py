"""Rows sorted, and the first ones of them. Ties have an order in newer versions."""

import torch

ORDERED = hasattr(torch.nn, "RMSNorm")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        if ORDERED:
            return torch.sort(x, dim=-1, descending=True, stable=True).values[:, :8].contiguous()
        return torch.topk(x, 8, dim=-1).values
