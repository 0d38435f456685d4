"""In place."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.softmax((x + 1).lgamma_(), dim=-1)
