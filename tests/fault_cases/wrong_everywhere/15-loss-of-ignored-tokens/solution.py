"""The logarithm of the sum, less the label's own score; no row of logarithms is written."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, label):
        rows = torch.arange(len(x)) * x.shape[1]
        own = torch.take(x, rows + label.clamp(min=0))
        loss = torch.logsumexp(x, dim=-1).sub_(own)
        return loss.sum() / (label >= 0).sum()
