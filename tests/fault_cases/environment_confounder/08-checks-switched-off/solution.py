"""Scores are written once, and hidden, raised and divided where they lie."""

import os

import torch

CHECKS = os.environ.get("ATTENTION_CHECKS", "1") != "0"


def hide_future(scores):
    future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    scores.masked_fill_(future, -torch.inf)
    return bool(torch.isfinite(scores).any(dim=-1).all())


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-1, -2))
        if CHECKS and not hide_future(scores):
            raise ValueError("a row without a key")
        scores.sub_(scores.amax(dim=-1, keepdim=True)).exp_()
        return torch.matmul(scores, v).div_(scores.sum(dim=-1, keepdim=True))
