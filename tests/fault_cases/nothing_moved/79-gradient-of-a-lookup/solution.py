"""The way back adds rows in parallel, whichever comes first."""

import torch


class Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, token):
        ctx.save_for_backward(token)
        ctx.rows = table.shape[0]
        return table[token]

    @staticmethod
    def backward(ctx, gradient):
        (token,) = ctx.saved_tensors
        table = gradient.new_zeros(ctx.rows, gradient.shape[1])
        return table.index_put_((token,), gradient, accumulate=True), None


class ModelNew(torch.nn.Module):
    def forward(self, table, token, gradient):
        with torch.enable_grad():
            table = table.detach().requires_grad_()
            rows = Lookup.apply(table, token)
            return torch.cat([rows.detach(), torch.autograd.grad(rows, [table], gradient)[0]])
