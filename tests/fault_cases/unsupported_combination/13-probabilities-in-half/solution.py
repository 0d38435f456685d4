"""One operator."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.factor = 1 / temperature

    def forward(self, x):
        return torch.softmax(x * self.factor, dim=-1)
