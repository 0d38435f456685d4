"""Tokens sorted by expert, so that each expert is one product of a contiguous piece."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, experts, width, capacity):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(experts, width, width) * width**-0.5)
        self.capacity = capacity

    @torch.no_grad()
    def forward(self, x, route):
        order = torch.sort(route, stable=True).indices
        counts = torch.bincount(route, minlength=len(self.weight)).tolist()
        out = torch.empty_like(x)
        for tokens, weight in zip(order.split(counts), self.weight, strict=True):
            tokens = tokens[: self.capacity]
            out[tokens] = torch.mm(x[tokens], weight)
        return out
