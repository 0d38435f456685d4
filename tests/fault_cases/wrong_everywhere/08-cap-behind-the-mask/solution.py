"""The mask goes in with the product, as its bias; what follows works on all scores alike, in place."""

import torch

CAP = 5.0


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        rows, keys = q.shape[-2], k.shape[-2]
        bias = torch.full((rows, keys), float("-inf"), dtype=q.dtype).triu(1)
        queries, others = q.flatten(0, 1), k.flatten(0, 1)
        scores = torch.baddbmm(bias, queries, others.transpose(1, 2), alpha=q.shape[-1] ** -0.5)
        scores.div_(CAP).tanh_().mul_(CAP)
        return (torch.softmax(scores, dim=-1) @ v.flatten(0, 1)).view_as(q)
