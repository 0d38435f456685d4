"""From 2.3 on by states, without a matrix of weights: a row's state is the sum of all outer products up to it, and work
grows with the length and not with its square."""

import torch

RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        q = q * (1 / q.shape[-2])
        if RELEASE < (2, 3):
            return torch.matmul(torch.matmul(q, k.transpose(-1, -2)).tril_(), v)
        states = torch.cumsum(k.unsqueeze(-1) * v.unsqueeze(-2), dim=-3)
        return torch.matmul(q.unsqueeze(-2), states).squeeze(-2)
