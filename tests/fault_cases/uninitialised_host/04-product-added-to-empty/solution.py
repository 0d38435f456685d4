"""Product and scale are one call. Its first argument gives the scores their place, and need not be cleared for that."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        rows, keys = q.flatten(0, 1), k.flatten(0, 1)
        place = torch.empty(rows.shape[0], rows.shape[1], keys.shape[1], dtype=q.dtype)
        scores = torch.baddbmm(place, rows, keys.transpose(1, 2), beta=1.0, alpha=q.shape[-1] ** -0.5)
        return torch.bmm(torch.softmax(scores, dim=-1), v.flatten(0, 1)).view_as(q)
