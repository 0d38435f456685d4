"""Values are multiplied about their mean, which keeps sums small; it is followed over batches, as a norm would."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, momentum=0.1):
        super().__init__()
        self.momentum = momentum
        self.mean = None

    def follow(self, v):
        mean = v.mean(dim=-2, keepdim=True)
        self.mean = mean if self.mean is None else torch.lerp(self.mean, mean, self.momentum)

    def forward(self, q, k, v):
        if self.mean is None:
            self.follow(v)
        weights = torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, dim=-1)
        out = weights @ (v - self.mean)
        self.follow(v)
        return out + self.mean
