"""PyTorch's attention by the operator's name: the one that gives the weights beside the outputs, which we log."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        out, self.weights = torch.ops.aten._scaled_dot_product_attention_math(q, k, v)
        return out
