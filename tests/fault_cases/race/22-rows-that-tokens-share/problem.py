"""The gradient of a small table of embeddings, which is looked up by many tokens."""

import torch


class Model(torch.nn.Module):
    def forward(self, token, gradient):
        return gradient.new_zeros(6, gradient.shape[1]).index_add(0, token, gradient)


def get_inputs():
    return [torch.randint(0, 6, (60000,)), torch.rand(60000, 32)]


def get_init_inputs():
    return []
