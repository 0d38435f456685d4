"""The projection is a convolution of one place, which takes the image as it lies, and attention is PyTorch's own."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.weight = torch.nn.Parameter(torch.randn(3 * channels, channels, 1, 1) / channels**0.5)

    def forward(self, x):
        places = torch.nn.functional.conv2d(x, self.weight.detach()).flatten(2)
        q, k, v = (y.unflatten(1, (self.heads, -1)).transpose(-1, -2) for y in places.chunk(3, dim=1))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)
