"""K and V are lined up with the heads of Q without a copy, and PyTorch's attention does the rest."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        batch, heads, rows, width = q.shape
        group = heads // k.shape[1]
        q = q.view(batch, group, k.shape[1], rows, width)
        k, v = (x[:, None].expand(batch, group, *x.shape[1:]) for x in (k, v))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v).reshape(batch, heads, rows, width)
