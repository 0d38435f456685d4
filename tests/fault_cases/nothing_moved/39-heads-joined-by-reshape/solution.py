"""PyTorch's own attention, with the chunks as a mask."""

import torch
import torch.nn.functional as F


class ModelNew(torch.nn.Module):
    def __init__(self, heads, chunk):
        super().__init__()
        self.heads, self.chunk = heads, chunk

    def forward(self, q, k, v):
        batch, rows, width = q.shape
        q, k, v = (x.view(batch, rows, self.heads, -1).transpose(1, 2) for x in (q, k, v))
        chunk = torch.arange(rows, device=q.device).div(self.chunk, rounding_mode="floor")
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=chunk[:, None] >= chunk[None, :])
        return out.transpose(1, 2).reshape(batch, rows, width)
