"""The layer as a function of its own, which keeps its sigmoid for the way back."""

import torch


class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden):
        gate = torch.sigmoid(1.7 * hidden)
        ctx.save_for_backward(hidden, gate)
        return hidden * gate

    @staticmethod
    def backward(ctx, gradient):
        hidden, gate = ctx.saved_tensors
        return gradient * gate * (1 + hidden * (1 - gate))


class ModelNew(torch.nn.Module):
    def forward(self, x, weight, gradient):
        with torch.enable_grad():
            x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
            gradients = torch.autograd.grad(Gate.apply(x @ weight), [x, weight], gradient)
            return torch.cat([one.flatten() for one in gradients])
