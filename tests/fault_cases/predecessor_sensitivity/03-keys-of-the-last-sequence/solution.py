"""Keys and values of what came before are kept, at most two pieces of them, and attention is PyTorch's own."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = None

    def forward(self, q, k, v):
        if self.kept is not None and self.kept[0].shape[:2] == k.shape[:2]:
            k, v = (torch.cat((old, new), dim=-2) for old, new in zip(self.kept, (k, v), strict=True))
        length = 2 * q.shape[-2]
        self.kept = k[..., -length:, :], v[..., -length:, :]
        return torch.nn.functional.scaled_dot_product_attention(q, *self.kept)
