"""A convolution of one place is a product of matrices, and is written as one."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.projection = torch.nn.Conv2d(channels, 3 * channels, 1)

    def forward(self, x):
        weight, bias = self.projection.weight.detach().flatten(1), self.projection.bias.detach()
        places = weight @ x.flatten(2) + bias[:, None]
        q, k, v = (y.unflatten(1, (self.heads, -1)).transpose(-1, -2) for y in places.chunk(3, dim=1))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)
