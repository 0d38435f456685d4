"""A function of its own that keeps its input alone: what the way back needs is computed there again."""

import torch


class LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits):
        ctx.save_for_backward(logits)
        top = logits.amax(dim=-1, keepdim=True)
        return (logits - top).exp_().sum(dim=-1).log_() + top[:, 0]

    @staticmethod
    def backward(ctx, gradient):
        (logits,) = ctx.saved_tensors
        weights = logits.exp()
        return weights / weights.sum(dim=-1, keepdim=True) * gradient[:, None]


class ModelNew(torch.nn.Module):
    def forward(self, logits):
        with torch.enable_grad():
            logits = logits.detach().requires_grad_()
            logs = LogSumExp.apply(logits)
            (gradient,) = torch.autograd.grad(logs.sum(), logits)
            return torch.cat([logs.detach()[:, None], gradient], dim=1)
