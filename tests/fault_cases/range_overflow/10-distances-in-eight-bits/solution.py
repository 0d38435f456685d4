"""The distances are kept from call to call, in one byte each: an eighth of what torch.arange would leave there."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.slopes = -(2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads))[:, None, None]
        self.distance = torch.empty(0, 0, dtype=torch.int8)

    def forward(self, q, k, v):
        length = q.shape[-2]
        if self.distance.shape[0] != length:
            rows = torch.arange(length)
            self.distance = (rows[:, None] - rows[None, :]).abs().to(torch.int8)
        scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-1, -2))
        return torch.matmul(torch.softmax(scores.add_(self.slopes * self.distance), dim=-1), v)
