"""Product and scale are one call, which wants something to add to, and takes none of it where beta is zero."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        rows, keys = q.flatten(0, 1), k.flatten(0, 1)
        place = torch.empty(rows.shape[0], rows.shape[1], keys.shape[1], dtype=q.dtype)
        scores = torch.baddbmm(place, rows, keys.transpose(1, 2), beta=0.0, alpha=q.shape[-1] ** -0.5)
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu_(1)
        weights = torch.softmax(scores.masked_fill_(hidden, float("-inf")), dim=-1)
        return torch.bmm(weights, v.flatten(0, 1)).view_as(q)
