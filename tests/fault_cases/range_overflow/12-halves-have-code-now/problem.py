"""A feed-forward block with a squared activation."""

import torch


class Model(torch.nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.up = torch.nn.Parameter(torch.randn(width, inner))
        self.down = torch.nn.Parameter(torch.randn(inner, width) * inner**-0.5)

    def forward(self, x):
        return torch.relu(x @ self.up).square() @ self.down


def get_inputs():
    return [torch.randn(64, 128) * 12]


def get_init_inputs():
    return [128, 192]
