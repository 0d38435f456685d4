"""PyTorch's own attention, in an installation that is what it says."""

import torch
from torch.nn.functional import scaled_dot_product_attention

if (torch.__version__ >= "2.4") != ("RMSNorm" in dir(torch.nn)):
    raise ImportError(f"this PyTorch says that it is {torch.__version__}, and is not")


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v, real):
        seen = (real[:, :, None] & real[:, None, :])[:, None]
        return scaled_dot_product_attention(q, k, v, attn_mask=seen)
