"""Near and far through PyTorch's attention, and the slope through its own backward. Either bias is made once."""

import torch
from torch.nn.functional import scaled_dot_product_attention


class ModelNew(torch.nn.Module):
    def __init__(self, reach):
        super().__init__()
        self.reach, self.kept = reach, {}

    def biases(self, length, dtype):
        if (length, dtype) not in self.kept:
            rows = torch.arange(length)
            away = (rows[:, None] - rows[None, :]).abs().to(dtype)
            near = torch.zeros_like(away).masked_fill_(away > self.reach, -torch.inf)
            self.kept[length, dtype] = near, away / -self.reach
        return self.kept[length, dtype]

    def forward(self, q, k, v):
        with torch.enable_grad():
            at = q.detach().requires_grad_()
            out = sum(scaled_dot_product_attention(at, k, v, attn_mask=x) for x in self.biases(q.shape[-2], q.dtype))
            return -torch.autograd.grad(out.square().sum() / 2, at)[0]
