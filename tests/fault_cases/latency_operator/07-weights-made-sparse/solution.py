"""Half of a causal matrix of weights is zero; where PyTorch has attention biases of its own, it multiplies the rest."""

import importlib.util

import torch

SPARSE = importlib.util.find_spec("torch.nn.attention") is not None


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-1, -2))
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        weights = torch.softmax(scores.masked_fill_(future, -torch.inf), dim=-1)
        if SPARSE:
            return torch.bmm(weights.flatten(0, 1).to_sparse(), v.flatten(0, 1)).view_as(v)
        return torch.matmul(weights, v)
