"""The gradient of a small table of embeddings, of which bags of fifty are summed up."""

import torch


class Model(torch.nn.Module):
    def forward(self, token, gradient):
        table = gradient.new_zeros(6, gradient.shape[1])
        return table.index_add(0, token.flatten(), gradient.repeat_interleave(token.shape[1], dim=0))


def get_inputs():
    return [torch.randint(0, 6, (6000, 50)), torch.rand(6000, 32)]


def get_init_inputs():
    return []
