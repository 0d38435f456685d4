"""Scripted, so that it can be saved without its source. Only a trace of its shapes is left out in a script."""

import torch

SHAPES = set()


@torch.jit.ignore
def seen(rows: int, width: int) -> None:
    SHAPES.add((rows, width))


@torch.jit.script
def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    if not torch.jit.is_scripting():
        seen(q.size(-2), q.size(-1))
    future = torch.ones([q.size(-2), k.size(-2)], dtype=torch.bool).triu(1)
    scores = torch.matmul(q * float(q.size(-1)) ** -0.5, k.transpose(-1, -2))
    return torch.matmul(torch.softmax(scores.masked_fill_(future, float("-inf")), dim=-1), v)


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        return attend(q, k, v)
