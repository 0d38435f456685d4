"""A linear layer on 8-bit integers: activations and weights have a scale for each row."""

import torch


class Model(torch.nn.Module):
    def forward(self, x, weight, x_scale, weight_scale):
        product = x.to(x_scale.dtype) @ weight.to(x_scale.dtype).t()
        return product * x_scale[:, None] * weight_scale


def get_inputs():
    x, weight = (torch.randint(-127, 128, shape, dtype=torch.int8) for shape in [(96, 256), (80, 256)])
    return [x, weight, torch.rand(96) / 127, torch.rand(80) / 127]


def get_init_inputs():
    return []
