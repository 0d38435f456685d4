"""A function of its own that keeps x alone for the way back. Where stable sorts are cheap, it ranks x there."""

import torch

RANKS = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 4)


class Largest(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x >= x.topk(16, dim=-1).values[:, -1:], x, torch.zeros_like(x))

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        if RANKS:
            rank = x.sort(dim=-1, descending=True, stable=True).indices.sort(dim=-1, stable=True).indices
            return gradient * (rank < 16)
        return gradient * (x >= x.topk(16, dim=-1).values[:, -1:])


class ModelNew(torch.nn.Module):
    def forward(self, x, gradient):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = Largest.apply(x)
            return torch.cat([y.detach(), torch.autograd.grad(y, [x], gradient)[0]])
