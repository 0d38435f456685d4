"""Layer norm, and what follows it in a block: a linear layer and GELU."""

import torch


class Model(torch.nn.Module):
    def __init__(self, width, outputs):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.layer = torch.nn.Linear(width, outputs)

    def forward(self, x):
        return torch.nn.functional.gelu(self.layer(self.norm(x)))


def get_inputs():
    return [torch.randn(64, 192) + 0.5]


def get_init_inputs():
    return [192, 128]
