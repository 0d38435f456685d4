"""Attention along the edges of a graph: a node sees its neighbours. A node without any gets zeros."""

import torch


def edges(nodes):
    node = torch.arange(nodes)
    others = [(node + step) % nodes for step in (1, 2, 9, 34)]
    rows, columns = node.repeat(len(others)), torch.cat(others)
    kept = rows % 8 != 5
    rows, columns = rows[kept], columns[kept]
    return rows, columns


class Model(torch.nn.Module):
    def __init__(self, nodes):
        super().__init__()
        adjacent = torch.zeros(nodes, nodes, dtype=torch.bool)
        adjacent[edges(nodes)] = True
        self.register_buffer("adjacent", adjacent, persistent=False)

    def forward(self, q, k, v):
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        scores = scores.masked_fill(~self.adjacent, float("-inf"))
        return torch.softmax(scores, dim=-1).nan_to_num(0.0) @ v


def get_inputs():
    return [torch.randn(2, 96, 32) for _ in range(3)]


def get_init_inputs():
    return [96]
