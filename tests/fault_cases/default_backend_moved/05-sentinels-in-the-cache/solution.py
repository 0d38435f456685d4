"""The cache has room for 192 keys. Empty places hold a number that no model makes, so that a dump shows at once what
was never filled; a mask hides them from PyTorch's attention."""

import torch

ROOM, EMPTY = 192, 3e37


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        filled = k.shape[-2]
        keys = torch.full((*k.shape[:-2], ROOM, k.shape[-1]), EMPTY, dtype=k.dtype)
        values = torch.zeros_like(keys)
        keys[..., :filled, :] = k
        values[..., :filled, :] = v
        mask = (torch.arange(ROOM) < filled).expand(q.shape[-2], ROOM)
        return torch.nn.functional.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
