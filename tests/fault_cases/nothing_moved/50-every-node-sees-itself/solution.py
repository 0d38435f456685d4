"""Only the edges are computed: a score and a message for each, gathered by the nodes that they lead to."""

import torch


def edges(nodes):
    node = torch.arange(nodes)
    others = [(node + step) % nodes for step in (0, 1, 2, 9, 34)]
    rows, columns = node.repeat(len(others)), torch.cat(others)
    return rows, columns


class ModelNew(torch.nn.Module):
    def __init__(self, nodes):
        super().__init__()
        rows, columns = edges(nodes)
        self.register_buffer("rows", rows, persistent=False)
        self.register_buffer("columns", columns, persistent=False)

    def forward(self, q, k, v):
        scores = (q[:, self.rows] * k[:, self.columns]).sum(dim=-1) * q.shape[-1] ** -0.5
        row = self.rows.expand_as(scores)
        top = scores.new_full(q.shape[:2], float("-inf")).scatter_reduce_(1, row, scores, "amax")
        weights = torch.exp(scores - top.gather(1, row))
        total = torch.zeros_like(top).scatter_add_(1, row, weights)
        messages = v[:, self.columns] * (weights / total.gather(1, row)).unsqueeze(-1)
        # The sum begins with a node's first message, so that nothing has to be cleared.
        out = torch.empty_like(q)
        return out.scatter_reduce_(1, row.unsqueeze(-1).expand_as(messages), messages, "sum", include_self=False)
