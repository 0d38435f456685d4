"""PyTorch's own attention. Newer versions are given the mask as it is, older ones as numbers that are added."""

import torch
from torch.nn.functional import scaled_dot_product_attention

TAKES_BOOLEANS = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 3)


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v, real):
        seen = (real[:, :, None] & real[:, None, :])[:, None]
        mask = seen if TAKES_BOOLEANS else torch.zeros(seen.shape, dtype=q.dtype).masked_fill(~seen, float("-inf"))
        return scaled_dot_product_attention(q, k, v, attn_mask=mask)
