"""PyTorch's attention: it is told that it is causal, which needs no memory, and the padding alone is a mask."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v, lengths):
        rows = q.shape[-2]
        real = (torch.arange(rows) < lengths[:, None])[:, None, None, :].expand(-1, 1, rows, rows)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=real, is_causal=True)
