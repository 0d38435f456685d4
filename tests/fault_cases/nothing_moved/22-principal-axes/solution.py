"""Q and K are turned to the principal axes of K before their product, where a cache of K could leave the last ones out.
This one keeps all of them."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        axes = torch.linalg.svd(k, full_matrices=False)[2].transpose(-1, -2)
        return torch.nn.functional.scaled_dot_product_attention(q @ axes, k @ axes, v)
