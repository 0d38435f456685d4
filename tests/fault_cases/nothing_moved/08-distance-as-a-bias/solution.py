"""The bias as the mask of PyTorch's attention, which may choose how."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = None

    def forward(self, q, k, v):
        if self.kept is None or self.kept.shape[-1] != q.shape[-2]:
            slopes = torch.tensor([2.0 ** -(i + 1) for i in range(q.shape[1])])
            where = torch.arange(q.shape[-2], dtype=torch.float32)
            self.kept = (-slopes[:, None, None] * (where[:, None] - where[None, :]).abs()).unsqueeze(0)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=self.kept)
