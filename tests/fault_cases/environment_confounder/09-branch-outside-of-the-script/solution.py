"""Scripted, so that it can be saved without its source; where there is no script, scores are added onto the mask."""

import torch


@torch.jit.script
def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scale = 1.0 / float(q.size(-1)) ** 0.5
    q = q * scale
    future = torch.ones([q.size(-2), k.size(-2)], dtype=torch.bool).triu(1)
    mask = torch.zeros([q.size(-2), k.size(-2)], dtype=q.dtype).masked_fill(future, float("-inf"))
    if torch.jit.is_scripting():
        scores = torch.matmul(q, k.transpose(-1, -2)) + mask
    else:
        scores = torch.baddbmm(mask, q.flatten(0, 1), k.flatten(0, 1).transpose(-1, -2), alpha=scale)
    return torch.matmul(torch.softmax(scores.view(q.size(0), q.size(1), q.size(2), k.size(2)), dim=-1), v)


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        return attend(q, k, v)
