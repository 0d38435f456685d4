"""A line of the result is a fixed mixture of lines, so that the whole is two products with one narrow matrix."""

import math

import torch


def cubic(distance, a=-0.75):
    distance = abs(distance)
    if distance <= 1:
        return ((a + 2) * distance - (a + 3)) * distance * distance + 1
    return (((distance - 5) * distance + 8) * distance - 4) * a if distance < 2 else 0.0


def mixture(inner, outer):
    weight = torch.zeros(outer, inner, dtype=torch.float64)
    for line in range(outer):
        place = line * (inner - 1) / (outer - 1)
        for near in range(math.floor(place) - 1, math.floor(place) + 3):
            weight[line, min(max(near, 0), inner - 1)] += cubic(place - near)
    return weight.float()


class ModelNew(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size, self.weight = size, None

    def forward(self, x):
        if self.weight is None or self.weight.shape[1] != x.shape[-1]:
            self.weight = mixture(x.shape[-1], self.size)
        return (self.weight @ x.float() @ self.weight.t()).to(x.dtype)
