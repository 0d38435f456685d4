"""PyTorch's own attention with the window as a mask; heads are split and joined by views, without a copy."""

import torch
import torch.nn.functional as F


class ModelNew(torch.nn.Module):
    def __init__(self, heads, window):
        super().__init__()
        self.heads, self.window = heads, window

    def forward(self, q, k, v):
        batch, rows, width = q.shape
        q, k, v = (x.view(batch, rows, self.heads, -1).transpose(1, 2) for x in (q, k, v))
        near = torch.ones(rows, rows, dtype=torch.bool, device=q.device).tril(self.window).triu(-self.window)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=near)
        return out.transpose(1, 2).view(batch, rows, width)
