"""Masks are kept by length, type and device, and added with the scores in one product."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, window):
        super().__init__()
        self.window, self.masks = window, {}

    def mask(self, length, like):
        key = length, like.dtype, like.device
        if key not in self.masks:
            hidden = ~torch.ones(length, length, dtype=torch.bool, device=like.device).tril().triu(1 - self.window)
            self.masks[key] = like.new_zeros(length, length).masked_fill_(hidden, -torch.inf)
        return self.masks[key]

    def forward(self, q, k, v):
        mask, scale = self.mask(q.shape[-2], q), q.shape[-1] ** -0.5
        scores = torch.baddbmm(mask, q.flatten(0, 1), k.flatten(0, 1).transpose(-1, -2), alpha=scale)
        return torch.matmul(torch.softmax(scores.unflatten(0, q.shape[:2]), dim=-1), v)
