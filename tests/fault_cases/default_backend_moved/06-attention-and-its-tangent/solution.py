"""One pass forwards, in which PyTorch carries the derivative along."""

import torch
import torch.nn.functional as F


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v, bias, direction):
        def attention(queries):
            return F.scaled_dot_product_attention(queries, k, v, attn_mask=bias)

        return torch.func.jvp(attention, (q,), (direction,))[1]
