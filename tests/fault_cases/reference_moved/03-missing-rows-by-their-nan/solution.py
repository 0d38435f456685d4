"""Q is not looked at: a NaN in a query is a NaN in all of its row's scores, and so in its output."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return torch.where(torch.isnan(out), v.mean(dim=-2, keepdim=True), out)
