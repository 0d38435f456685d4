"""The projection in one expression."""

import torch


class ModelNew(torch.nn.Module):
    @torch.no_grad()
    def forward(self, x, weight):
        return torch.einsum("btc,chd->bhtd", x, weight).contiguous()
