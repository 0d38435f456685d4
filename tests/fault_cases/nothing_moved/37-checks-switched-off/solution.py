"""Exponentials of the keys that a row sees, by a lower triangle of factors; nothing is minus infinity on the way."""

import os

import torch

CHECKS = os.environ.get("ATTENTION_CHECKS", "1") != "0"


def check(holds, message):
    if not holds:
        raise ValueError(message)


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        if CHECKS:
            check(q.shape == k.shape == v.shape, "queries, keys and values are not of one shape")
        scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-1, -2))
        seen = torch.ones_like(scores[0, 0]).tril_()
        if CHECKS:
            check(bool(seen.any(dim=-1).all()), "a row without a key")
        top = torch.where(seen.bool(), scores, scores.new_tensor(-1e30)).amax(dim=-1, keepdim=True)
        weights = torch.exp(torch.minimum(scores - top, torch.zeros_like(top))) * seen
        total = weights.sum(dim=-1, keepdim=True)
        if CHECKS:
            check(bool((total > 0).all()), "a row without a weight")
        return torch.matmul(weights, v) / total
