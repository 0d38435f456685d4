"""A bias for each distance. Where PyTorch has attention biases of its own, it is looked up by a product."""

import importlib.util

import torch

AS_PRODUCT = importlib.util.find_spec("torch.nn.attention") is not None


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v, table):
        rows = torch.arange(q.shape[-2])
        away = rows[:, None] - rows[None, :] + q.shape[-2] - 1
        if AS_PRODUCT:
            which = torch.nn.functional.one_hot(away, table.shape[-1]).to(table.dtype)
            bias = torch.matmul(which, table.t()).permute(2, 0, 1)
        else:
            bias = table[:, away]
        scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-1, -2))
        return torch.matmul(torch.softmax(scores.add_(bias), dim=-1), v)
