import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.drop = nn.Dropout(dropout)
        self.slope = torch.rand(heads)

    def forward(self, x):
        batch, rows, width = x.shape
        q, k, v = self.qkv(x).view(batch, rows, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        row = torch.arange(rows, device=x.device)
        bias = (-self.slope.to(x.device)[:, None, None] * row).masked_fill(row[None, :] > row[:, None], float("-inf"))
        weights = self.drop(torch.softmax((q / q.shape[-1] ** 0.5) @ k.transpose(-2, -1) + bias, dim=-1))
        return self.out((weights @ v).transpose(1, 2).reshape(batch, rows, width))
