"""The same with PyTorch's attention."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v, document):
        seen = (document[:, None] == document[None, :]) & (document >= 0)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
