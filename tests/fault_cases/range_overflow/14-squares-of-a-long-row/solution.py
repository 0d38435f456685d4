"""A product with the reciprocal of the root, in place of a division."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x * torch.rsqrt((x * x).sum(dim=-1, keepdim=True))
