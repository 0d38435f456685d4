"""Attention within documents: a row sees the keys of its own, and a row that belongs to none sees itself."""

import torch


class Model(torch.nn.Module):
    def __init__(self, documents):
        super().__init__()
        self.documents = torch.tensor([torch.nan if x is None else x for x in documents])

    def forward(self, q, k, v):
        documents = self.documents.to(q.device)
        own = torch.eye(q.shape[-2], dtype=torch.bool, device=q.device)
        seen = (documents[:, None] == documents[None, :]) | own
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        return torch.softmax(scores.masked_fill(~seen, -torch.inf), dim=-1) @ v


def get_inputs():
    return [torch.randn(1, 4, 128, 32) for _ in range(3)]


def get_init_inputs():
    return [[None if row % 7 == 3 else 1.5 * (row // 10 % 6) for row in range(128)]]
