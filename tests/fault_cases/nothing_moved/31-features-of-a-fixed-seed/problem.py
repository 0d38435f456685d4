"""Linear attention with random features, drawn at construction from a generator of their own with a fixed seed."""

import torch

FEATURES, SEED = 256, 20_231


def features(width):
    generator = torch.Generator().manual_seed(SEED)
    return torch.randn(FEATURES, width, generator=generator)


def mapped(x, directions):
    x = x * x.shape[-1] ** -0.25
    return torch.exp(x @ directions.T - x.square().sum(-1, keepdim=True) / 2) / FEATURES**0.5


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("directions", features(width), persistent=False)

    def forward(self, q, k, v):
        weights = mapped(q, self.directions) @ mapped(k, self.directions).transpose(-1, -2)
        return (weights / weights.sum(-1, keepdim=True)) @ v


def get_inputs():
    return [0.5 * torch.randn(1, 2, 192, 32), 0.5 * torch.randn(1, 2, 192, 32), torch.randn(1, 2, 192, 32)]


def get_init_inputs():
    return [32]
