"""Rows by sixteens, each block with the keys that its window reaches: most of the matrix of scores is never made."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, window):
        super().__init__()
        self.window = window

    def forward(self, q, k, v):
        length = q.shape[-2]
        q = q * q.shape[-1] ** -0.5
        out = torch.empty_like(q)
        for start in range(0, length, 16):
            end, first = min(start + 16, length), max(0, start - self.window)
            rows, keys = torch.arange(start, end), torch.arange(first, end)
            back = rows[:, None] - keys[None, :]
            scores = q[..., start:end, :] @ k[..., first:end, :].transpose(-1, -2)
            scores.masked_fill_((back < 0) | (back > self.window), -torch.inf)
            out[..., start:end, :] = torch.softmax(scores, dim=-1) @ v[..., first:end, :]
        return out
