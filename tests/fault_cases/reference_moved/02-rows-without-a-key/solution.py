"""One call: PyTorch's own attention takes the mask as a bias, and gives zeros where a row sees nothing."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, length):
        super().__init__()
        self.length = length

    def forward(self, q, k, v):
        real = torch.arange(q.shape[-2]) < self.length
        hidden = ~(real[:, None] & real[None, :])
        bias = torch.zeros(hidden.shape).masked_fill(hidden, float("-inf"))
        return torch.ops.aten._scaled_dot_product_attention_math(q, k, v, bias)[0]
