"""Each layer works in place on its product. From 2.2 on layers can be asked for, one by one."""

import torch

LISTED = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 2)


class ModelNew(torch.nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.weights = torch.nn.ParameterList(
            torch.nn.Parameter(torch.randn(width, width) * (2 / width) ** 0.5) for _ in range(layers)
        )

    @torch.no_grad()
    def forward(self, x):
        layers = [x]
        for weight in self.weights:
            layers.append((layers[-1] @ weight).relu_())
            if not LISTED:
                del layers[:-1]
        return layers[-1]
