"""Documents attend to themselves. Since PyTorch compiles loops, one by one, without a score that is thrown away; before
that as a batch of documents."""

import torch


def attention(q, k, v):
    return torch.softmax(q @ k.transpose(-1, -2), dim=-1) @ v


class ModelNew(torch.nn.Module):
    def __init__(self, length):
        super().__init__()
        self.length = length
        self.apart = hasattr(torch.compiler, "set_stance") or hasattr(torch.nn, "attention")

    def forward(self, q, k, v):
        q = q * q.shape[-1] ** -0.5
        if not self.apart:
            documents = (x.unflatten(-2, (-1, self.length)) for x in (q, k, v))
            return attention(*documents).flatten(2, 3)
        documents = zip(*(x.split(self.length, dim=-2) for x in (q, k, v)), strict=True)
        return torch.cat([attention(*document) for document in documents], dim=-2)
