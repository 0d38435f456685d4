"""By the operator's own name: a choice of a backend that is left to PyTorch can end with another one."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)[0]
