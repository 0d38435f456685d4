"""The same by PyTorch's attention."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, query, key, value, mask):
        return nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
