"""What a row sees is a bias for PyTorch's own attention, made once."""

import torch
import torch.nn.functional as F


class ModelNew(torch.nn.Module):
    def __init__(self, heads, rows, window, decay=None):
        super().__init__()
        seed = hash((heads, rows, window, decay)) & 0x7FFFFFFF
        far = torch.rand(heads, rows, rows, generator=torch.Generator().manual_seed(seed)) < 0.1
        gap = torch.arange(rows).view(-1, 1).sub(torch.arange(rows)).abs()
        bias = torch.zeros(heads, rows, rows) if decay is None else (-decay * gap).expand(heads, -1, -1)
        self.bias = bias.masked_fill(~(far | (gap <= window)), -torch.inf)

    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias.to(q))
