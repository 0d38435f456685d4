"""Turning and its way back by hand. Newer versions multiply complex numbers, whose kernels got better."""

import torch

COMPLEX = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 3)


def turned(x, sine, cosine):
    if COMPLEX:
        pairs = torch.view_as_complex(x.contiguous().unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * torch.complex(cosine, sine)).flatten(-2)
    left, right = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([left * cosine - right * sine, left * sine + right * cosine], dim=-1).flatten(-2)


class Turn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, phase):
        sine, cosine = phase.sin(), phase.cos()
        ctx.save_for_backward(sine, cosine)
        return turned(x, sine, cosine)

    @staticmethod
    def backward(ctx, gradient):
        sine, cosine = ctx.saved_tensors
        return turned(gradient, -sine, cosine), None


class ModelNew(torch.nn.Module):
    def forward(self, x, phase, gradient):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(torch.tanh(Turn.apply(x, phase)), x, gradient)[0]
