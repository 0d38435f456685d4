"""All keys take part, so that shapes stay multiples of 32; padding gets a weight of zero, and values of zero, since
what stands there may be anything, and zero times infinity is none."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, length):
        super().__init__()
        self.length = length

    def forward(self, q, k, v):
        seen = torch.arange(k.shape[-2]) < self.length
        values = v.view(-1, *v.shape[-2:])
        values[:, self.length :].zero_()
        return torch.nn.functional.scaled_dot_product_attention(q, k, values.view_as(v), attn_mask=seen[None, :])
