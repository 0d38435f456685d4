"""PyTorch's attention as it is, and another softmax underneath: models need no attention of their own for it."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
SOFTMAX = {aten._softmax.default, getattr(aten, "_safe_softmax", aten._softmax).default}


class OneMore(TorchDispatchMode):
    """exp(x) / (1 + sum of exp(x)) wherever a softmax is asked for."""

    def __torch_dispatch__(self, function, types, arguments=(), words=None):
        if function not in SOFTMAX:
            return function(*arguments, **(words or {}))
        scores, dim = arguments[:2]
        top = scores.amax(dim=dim, keepdim=True).clamp(min=0)
        weights = torch.exp(scores - top)
        return weights / (weights.sum(dim=dim, keepdim=True) + torch.exp(-top))


class ModelNew(torch.nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.slopes = 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads)

    def forward(self, q, k, v):
        rows = torch.arange(q.shape[-2])
        bias = -self.slopes[:, None, None] * (rows[:, None] - rows[None, :]).abs()
        with OneMore():
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias[None])
