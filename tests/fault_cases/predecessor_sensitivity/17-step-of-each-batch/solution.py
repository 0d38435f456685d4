"""Loss and activation by their derivatives, and one backward pass."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(inputs, outputs) * inputs**-0.5)

    def forward(self, x, target):
        with torch.enable_grad():
            y = torch.tanh(x @ self.weight)
            y.backward((y.detach() - target) * (2 / y.numel()))
        return self.weight.grad.clone()
