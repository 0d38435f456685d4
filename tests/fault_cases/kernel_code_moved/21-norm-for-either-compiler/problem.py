"""Layer norm of quiet activations."""

import torch


class Model(torch.nn.Module):
    def forward(self, x, weight, bias):
        return torch.nn.functional.layer_norm(x, (x.shape[-1],), weight, bias, eps=1e-5)


def get_inputs():
    return [torch.randn(400, 384) * 0.02, torch.rand(384) + 0.5, torch.randn(384)]


def get_init_inputs():
    return []
