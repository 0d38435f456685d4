"""Each edge adds to its own node; no matrix of nodes by edges, which is nearly all zeros."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, nodes):
        super().__init__()
        self.nodes = nodes

    def forward(self, messages, weights, ends):
        out = messages.new_zeros(self.nodes, messages.shape[-1])
        return out.index_add_(0, ends, messages * weights[:, None])
