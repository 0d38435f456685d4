"""Each layer works in place on its product, and the last calls' layers can be asked for."""

from collections import deque

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.weights = torch.nn.ParameterList(
            torch.nn.Parameter(torch.randn(width, width) * (2 / width) ** 0.5) for _ in range(layers)
        )
        self.kept = deque(maxlen=16)

    @torch.no_grad()
    def forward(self, x):
        layers = [x]
        for weight in self.weights:
            layers.append((layers[-1] @ weight).relu_())
        self.kept.append(layers[1:-1])
        return layers[-1]
