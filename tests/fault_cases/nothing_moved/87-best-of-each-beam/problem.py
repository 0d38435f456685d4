"""The best score of each beam: scores are logarithms of probabilities."""

import torch


class Model(torch.nn.Module):
    def forward(self, scores):
        return scores.amax(dim=-1)


def get_inputs():
    return [torch.rand(5000, 100) * -9 - 0.25]


def get_init_inputs():
    return []
