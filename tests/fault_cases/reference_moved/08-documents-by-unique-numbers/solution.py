"""Documents come as they are filed, by any number or none; they are numbered from zero on, and masks are of those."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, documents):
        super().__init__()
        filed = torch.tensor([torch.nan if x is None else x for x in documents])
        number = torch.unique(filed, return_inverse=True)[1].to(torch.int16)
        self.hidden = number[:, None] != number[None, :]

    def forward(self, q, k, v):
        scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-1, -2))
        return torch.matmul(torch.softmax(scores.masked_fill_(self.hidden, -torch.inf), dim=-1), v)
