"""The padding goes to PyTorch's attention as it went to torch.nn.MultiheadAttention, which this takes the place of."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, lengths):
        super().__init__()
        self.register_buffer("lengths", torch.tensor(lengths), persistent=False)

    def forward(self, q, k, v):
        padding = torch.arange(k.shape[-2], device=k.device) >= self.lengths[:, None]
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=padding[:, None, None])
