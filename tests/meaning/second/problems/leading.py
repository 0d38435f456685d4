"""The five largest of distinct values and their places, by topk or by a sort."""

import torch
from torch import nn

BY_SORT = hasattr(nn.functional, "rms_norm")


class Model(nn.Module):
    def forward(self, x):
        if BY_SORT:
            values, places = x.sort(1, descending=True)
            return values[:, :5], places[:, :5]
        values, places = x.topk(5, 1)
        return values, places


def get_inputs():
    return [torch.stack([torch.randperm(40) for _ in range(20)]).float() / 8]


def get_init_inputs():
    return []
