"""The same with the scale in the queries; an octave is one more in the exponent, which costs no digit."""

import math

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, octaves):
        super().__init__()
        self.octaves = octaves

    def forward(self, q, k, places):
        weights = torch.softmax(torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-1, -2)), dim=-1)
        seen = torch.matmul(weights, places)
        phases = torch.ldexp((seen * math.pi)[..., None], torch.arange(self.octaves))
        return torch.cat([torch.sin(phases), torch.cos(phases)], dim=-1).flatten(-2)
