"""The residual is added by the last product itself, which writes its result where the residual was: no tensor more."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, q, k, v):
        q, k, v = (tensor.flatten(0, 1) for tensor in (q, k, v))
        weights = torch.softmax(torch.bmm(q, k.transpose(1, 2)).mul_(q.shape[-1] ** -0.5), dim=-1)
        x.view(-1, *x.shape[-2:]).baddbmm_(weights, v)
        return x
