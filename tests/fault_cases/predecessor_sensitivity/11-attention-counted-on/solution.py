"""Keys and values that stay are gathered before the second product, and how much keys were looked at is counted as rows
come in: a sequence may arrive in parts."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, kept):
        super().__init__()
        self.kept, self.looked_at = kept, None

    def forward(self, q, k, v):
        scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-1, -2))
        if self.looked_at is None or len(self.looked_at) != k.shape[-2]:
            self.looked_at = scores.new_zeros(k.shape[-2])
        self.looked_at += torch.softmax(scores, dim=-1).sum(dim=(0, 1, 2))
        stays = self.looked_at.topk(self.kept).indices
        return torch.matmul(torch.softmax(scores[..., stays], dim=-1), v[..., stays, :])
