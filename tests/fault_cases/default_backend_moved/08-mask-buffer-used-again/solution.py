"""Near and far through PyTorch's attention, and the slope through its own backward. One buffer holds either bias."""

import torch
from torch.nn.functional import scaled_dot_product_attention


class ModelNew(torch.nn.Module):
    def __init__(self, reach):
        super().__init__()
        self.reach = reach

    def forward(self, q, k, v):
        rows = torch.arange(q.shape[-2])
        away = (rows[:, None] - rows[None, :]).abs()
        bias = torch.zeros(away.shape, dtype=q.dtype).masked_fill_(away > self.reach, -torch.inf)
        with torch.enable_grad():
            at = q.detach().requires_grad_()
            out = scaled_dot_product_attention(at, k, v, attn_mask=bias)
            torch.div(away, -self.reach, out=bias)
            out = out + scaled_dot_product_attention(at, k, v, attn_mask=bias)
            return -torch.autograd.grad(out.square().sum() / 2, at)[0]
