"""A layer norm of rows that are far from zero, as those of bright images are."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.layer_norm(x, x.shape[-1:])


def get_inputs():
    return [torch.randn(128, 256) * 2 + 200]


def get_init_inputs():
    return []
