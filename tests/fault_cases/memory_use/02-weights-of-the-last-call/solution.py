"""The same with one product less to scale. From 2.4 on the weights of the last call can be looked at, for plots."""

import torch

KEEPS = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 4)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = None

    def forward(self, q, k, v):
        weights = torch.softmax((q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2), dim=-1)
        if KEEPS:
            self.weights = weights
        return weights @ v
